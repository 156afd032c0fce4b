# SPDX-License-Identifier: Apache-2.0
"""Three steps in PyNative mode, the optimizer compiled as MindSpore does it; exp overflows in step
1.
"""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops


class Block(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(8, 8)
        self.act = nn.ReLU()

    def construct(self, x):
        return self.act(self.fc(x))


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.SequentialCell(Block(), Block())
        self.head = nn.Dense(8, 4)

    def construct(self, x):
        h = self.blocks(x)
        h = ops.exp(h * 40)  # <- origin
        return self.head(h)


def main() -> None:
    ms.set_seed(1)
    net = Net()
    optimizer = nn.SGD(net.trainable_params(), 0.01)
    gradient = ms.value_and_grad(lambda x: ops.reduce_mean(net(x)), None, optimizer.parameters)
    for number in range(3):
        data = np.random.RandomState(number).randn(4, 8).astype(np.float32) * (1 + 3 * number)
        loss, gradients = gradient(Tensor(data))
        optimizer(gradients)
        print(number, float(loss.asnumpy()).hex(), flush=True)


main()
