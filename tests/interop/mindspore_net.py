# SPDX-License-Identifier: Apache-2.0
"""Train a small MindSpore network on CPU in graph mode: python mindspore_net.py
conv|half|attention|loop.

Run by test_mindspore_producer.py with the interpreter that has MindSpore; the framework's own dump
writes what MINDSPORE_DUMP_CONFIG asks for. In HalfNet the product with scale leaves the float16
range, in LoopNet the fourth turn of the loop the float32 range.
"""

from __future__ import annotations

import sys

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops


class ConvNet(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.bn = nn.BatchNorm2d(4)
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(2, 2)
        self.flat = nn.Flatten()
        self.fc = nn.Dense(4 * 4 * 4, 10)

    def construct(self, x):
        return self.fc(self.flat(self.pool(self.relu(self.bn(self.conv(x))))))


class HalfNet(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Dense(8, 16).to_float(ms.float16)
        self.fc2 = nn.Dense(16, 10).to_float(ms.float16)
        self.scale = Tensor(np.float16(30000.0))

    def construct(self, x):
        h = self.fc1(x)
        h = h * self.scale  # <- origin
        h = ops.exp(h - ops.reduce_max(h)) + h
        return ops.cast(self.fc2(h), ms.float32)


class Attention(nn.Cell):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.q = nn.Dense(width, width).to_float(ms.float16)
        self.k = nn.Dense(width, width).to_float(ms.float16)
        self.v = nn.Dense(width, width).to_float(ms.float16)
        self.norm = nn.LayerNorm((width,))
        self.product = ops.BatchMatMul()

    def construct(self, x):
        y = self.norm(x)
        q, k, v = self.q(y), self.k(y), self.v(y)
        weights = ops.softmax(self.product(q, k.transpose(0, 2, 1)) * 0.5, -1)
        return x + ops.cast(self.product(weights, v), ms.float32)


class AttentionNet(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.CellList([Attention(16), Attention(16)])
        self.head = nn.Dense(16, 10)

    def construct(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x).reshape(-1, 10)


class LoopNet(nn.Cell):
    """Condition and body of the loop are graphs of their own; the loss is another."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(8, 10)

    def construct(self, x):
        h = self.fc(x)
        turn = Tensor(0, ms.int32)
        while turn < 5:
            h = h * 1e10  # <- grows
            turn = turn + 1
        return h


NETS = {
    "conv": (ConvNet, (2, 1, 8, 8), 2, 1.0),
    "half": (HalfNet, (4, 8), 4, 20.0),
    "attention": (AttentionNet, (2, 5, 16), 10, 1.0),
}
NETS["loop"] = (LoopNet, (4, 8), 4, 1.0)


def main() -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    ms.set_seed(1)
    kind, shape, labels, scale = NETS[sys.argv[1]]
    net = kind()
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, loss), optimizer)
    for number in range(3):
        data = Tensor(np.random.RandomState(number).randn(*shape).astype(np.float32) * scale)
        step(data, Tensor(np.arange(labels).astype(np.int32) % 10))


main()
