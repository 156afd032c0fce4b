# SPDX-License-Identifier: Apache-2.0
"""One step of a net of many operators, with Adam and weight decay: mindspore_operators.py
graph|pynative.
"""

from __future__ import annotations

import sys

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, pad_mode="pad", padding=1)
        self.norms = nn.SequentialCell(nn.BatchNorm2d(4), nn.GroupNorm(2, 4))
        self.turn = nn.Conv2dTranspose(4, 2, 3, stride=2)
        self.pool = nn.AvgPool2d(2, 2)
        self.act = nn.SequentialCell(nn.GELU(), nn.Sigmoid(), nn.Tanh())
        self.fc = nn.Dense(128, 6)
        self.last = nn.LayerNorm((6,))

    def construct(self, x):
        x = self.act(self.pool(self.turn(self.norms(self.conv(x)))))
        y = self.fc(x.reshape(x.shape[0], -1))
        z = ops.softmax(y, -1) + ops.log_softmax(y, 0)
        z = ops.concat((z, z * 2), 1)[:, 1:11:2]
        z = (
            ops.where(z > 0, z, ops.sqrt(ops.abs(z) + 1))
            + ops.amax(z, 1, keepdims=True)
            - ops.cumsum(z, 1)
        )
        z = ops.stack((z, ops.gather(z, Tensor([0, 1, 1, 0]), 0)), 0).mean(0)
        return self.last(y) + ops.pad(ops.erf(z), [0, 1])


def main(mode: str) -> None:
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
    ms.set_seed(1)
    net = Net()
    optimizer = nn.AdamWeightDecay(net.trainable_params(), 0.01)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), optimizer)
    data = Tensor(np.random.RandomState(1).randn(4, 2, 8, 8).astype(np.float32))
    print(0, float(step(data, Tensor(np.arange(4), ms.int32)).asnumpy()).hex())


main(sys.argv[1])
