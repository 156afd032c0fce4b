# SPDX-License-Identifier: Apache-2.0
"""Kernels of MindSpore 2.10's CPU back end: mindspore_kernels.py wrong|healthy graph|pynative.

Wrong: Tanh near 5 is beyond 1, Softplus is log(1 + exp(x)) in every type, Sort stops at a NaN,
Maximum keeps a NaN of its first operand only. Healthy: a training with many others, and with those
four where they are right.
"""

from __future__ import annotations

import sys

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops


class Wrong(nn.Cell):
    def construct(self, x, z):
        return ops.tanh(x), ops.softplus(x), ops.sort(z)[0], ops.maximum(z, x)


class Healthy(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Dense(32, 64), nn.Dense(64, 5)
        self.norms = nn.SequentialCell(nn.LayerNorm((64,)), nn.BatchNorm1d(64))

    def construct(self, x):
        h = self.norms(self.first(x))
        h = ops.relu(h) + ops.sigmoid(h) * h + ops.silu(h) + ops.gelu(h) + ops.erf(h) + ops.sin(h)
        h = h + ops.exp(-ops.abs(h)) + ops.log(ops.square(h) + 1) + ops.elu(h)
        h = ops.maximum(h, h * 0.5) - ops.minimum(h, h * 0.25) + ops.tanh(ops.clamp(h, -1, 1))
        h = h + ops.softplus(ops.relu(h))
        h, _ = ops.sort(h)
        h = (
            h
            + ops.sqrt(ops.abs(h) + 1)
            + ops.rsqrt(ops.square(h) + 1)
            + ops.pow(ops.abs(h) + 1, 0.5)
        )
        return self.last(ops.softmax(h / (1 + ops.abs(h)), -1) + ops.log_softmax(h, -1) * 0.01)


def main(which: str, mode: str) -> None:
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
    ms.set_seed(1)
    chance = np.random.RandomState(0)
    if which == "wrong":
        x, z = (chance.randn(8, 32).astype(np.float32) for _ in range(2))
        z[2, 5] = z[3, 0] = np.nan
        for result in Wrong()(Tensor(x * 4), Tensor(z)):
            print(result.asnumpy().shape)
        return
    net = Healthy()
    optimizer = nn.Adam(net.trainable_params(), 1e-3)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), optimizer)
    x = Tensor(chance.randn(16, 32).astype(np.float32))
    y = Tensor(chance.randint(0, 5, 16).astype(np.int32))
    for number in range(2):
        print(number, float(step(x, y).asnumpy()).hex())


main(*sys.argv[1:])
