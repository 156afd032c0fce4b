# SPDX-License-Identifier: Apache-2.0
"""Four steps in PyNative mode with compiled parts in between, forward, backward and optimizer; post
overflows in step 2.

Words on the command line: step (the program says itself when a step is over), choose
(opscope.set_dump), record PATH (opscope.record).
"""

from __future__ import annotations

import contextlib
import sys

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops


class Mid(nn.Cell):
    @ms.jit
    def construct(self, x):
        return ops.tanh(x * 2) + 1


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(8, 8)
        self.mid = Mid()
        self.head = nn.Dense(8, 4)

    def construct(self, x):
        return self.head(self.mid(self.fc(x)))


@ms.jit
def post(x, scale):
    y = x * scale
    return ops.exp(y)  # <- origin


def main(words: list[str]) -> None:
    ms.set_seed(1)
    net = Net()
    optimizer = nn.SGD(net.trainable_params(), 0.01)
    gradient = ms.value_and_grad(lambda x: ops.reduce_mean(net(x)), None, optimizer.parameters)
    opscope = __import__("opscope") if words else None
    if "choose" in words:
        opscope.set_dump(net.mid)
        opscope.set_dump("ReduceMean")
    recording = (
        opscope.record(words[1], values="full")
        if words[:1] == ["record"]
        else contextlib.nullcontext()
    )
    with recording:
        for number in range(4):
            loss, gradients = gradient(
                Tensor(np.random.RandomState(number).randn(4, 8).astype(np.float32))
            )
            checked = post(loss, Tensor(np.float32(1e4 if number == 2 else 1)))
            optimizer(gradients)
            print(number, float(loss.asnumpy()).hex(), float(checked.asnumpy()).hex(), flush=True)
            if "step" in words:
                opscope.mark_step()


main(sys.argv[1:])
