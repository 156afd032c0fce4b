# SPDX-License-Identifier: Apache-2.0
"""A LeNet in graph mode with given weights, one forward pass or two steps of training:
lenet_mindspore.py WEIGHTS.npz PADDING [RATE].
"""

from __future__ import annotations

import sys

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

WEIGHTS = np.load(sys.argv[1])
PADDING = int(sys.argv[2])


class LeNet(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, pad_mode="pad", padding=2, has_bias=True)
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="pad", padding=PADDING, has_bias=True)
        self.pool = nn.MaxPool2d(2, 2)
        self.relu = nn.ReLU()
        self.flatten = nn.Flatten()
        self.fc1 = nn.Dense(16 * (5 + PADDING) ** 2, 32)
        self.fc2 = nn.Dense(32, 10)

    def construct(self, x):
        x = self.pool(self.relu(self.conv1(x)))
        x = self.pool(self.relu(self.conv2(x)))
        x = self.relu(self.fc1(self.flatten(x)))
        return self.fc2(x)


class Loss(nn.Cell):
    def __init__(self, net: nn.Cell) -> None:
        super().__init__()
        self.net = net

    def construct(self, x):
        return ops.reduce_mean(ops.square(self.net(x)))


def train(net: nn.Cell, rate: float) -> None:
    step = nn.TrainOneStepCell(Loss(net), nn.Momentum(net.trainable_params(), rate, 0.9))
    for _ in range(2):
        print(step(Tensor(WEIGHTS["x"])).asnumpy())


def main() -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    net = LeNet()
    for name, parameter in net.parameters_and_names():
        key = f"{name}.{PADDING}" if name.startswith("fc1") else name
        parameter.set_data(Parameter(Tensor(WEIGHTS[key.replace(".", "_")])))
    if sys.argv[3:]:
        train(net, float(sys.argv[3]))
        return
    net.set_train(False)
    print(net(Tensor(WEIGHTS["x"])).asnumpy().sum())


main()
