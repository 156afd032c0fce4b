# SPDX-License-Identifier: Apache-2.0
"""Forty steps of a small net in graph mode; prints each loss, exactly, so that a run can be
compared with one under opscope.

Words: choose (opscope.set_dump), slow (a fifth of a second a step), and what happens after step 2:
raise, kill (SIGKILL), interrupt (Ctrl-C).
"""

from __future__ import annotations

import os
import signal
import sys
import time

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(8, 4)

    def construct(self, x):
        return ops.reduce_mean(ops.exp(self.dense(x)))


def main() -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(1)
    net = Net()
    if sys.argv[1:] == ["choose"]:
        __import__("opscope").set_dump(net.dense)
    step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.01))
    for number in range(40):
        loss = step(Tensor(np.random.RandomState(number).randn(4, 8).astype(np.float32)))
        print(number, float(loss.asnumpy()).hex(), flush=True)
        if sys.argv[1:] == ["slow"]:
            time.sleep(0.2)
        if sys.argv[1:] == ["raise"] and number == 2:
            raise ValueError("no more data")
        if number == 2 and sys.argv[1:2] in (["kill"], ["interrupt"]):
            os.kill(os.getpid(), signal.SIGKILL if sys.argv[1] == "kill" else signal.SIGINT)


main()
