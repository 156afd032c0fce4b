# SPDX-License-Identifier: Apache-2.0
"""Complex numbers in graph mode, on which MindSpore's own dump raises (2.10): a Cell, @jit, a
gradient, a training; -1 overflows.
"""

from __future__ import annotations

import sys

import mindspore as ms
import numpy as np
from mindspore import nn, ops

KIND = sys.argv[1]
ms.set_context(mode=ms.PYNATIVE_MODE if KIND == "beside" else ms.GRAPH_MODE)
X = ms.Tensor(np.array([1.0, 2.0, 3.0], np.float32))


def f(x):
    c = ops.Complex()(x, x)
    return ops.real(ops.abs(c)).sum() + ops.log(x).sum()  # <- origin


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.w = ms.Parameter(ms.Tensor(np.ones(3, np.float32)), name="w")

    def construct(self, x):
        return f(x * self.w)


net = Net()
optimizer = nn.SGD(net.trainable_params(), 0.01)
if KIND == "cell":
    print(net(X), net(-X))
elif KIND == "function":
    print(ms.jit(f)(X), ms.jit(f)(-X))
elif KIND == "beside":
    print(ops.exp(ms.jit(f)(X)), ms.jit(f)(-X))
elif KIND == "gradient":
    step = ms.value_and_grad(net, None, optimizer.parameters)
    for _ in range(2):
        loss, gradient = step(X)
        optimizer(gradient)
        print(loss)
    print(ms.grad(f)(-X))
elif KIND == "training":
    train = nn.TrainOneStepCell(net, optimizer)
    for sign in (1, 1, -1):
        print(train(sign * X))
print("mode", ms.get_context("mode"))
