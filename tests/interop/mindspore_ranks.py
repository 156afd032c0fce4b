# SPDX-License-Identifier: Apache-2.0
"""Two ranks on CPU, started by msrun; in step 2 an exponential of rank 1 overflows, and the sum
over ranks carries it to all.
"""

from __future__ import annotations

import sys

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.communication import get_group_size, get_rank, init


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(8, 4)
        self.reduce = ops.AllReduce()

    def construct(self, x):
        y = ops.exp(self.fc(x))  # <- origin
        return self.reduce(y)


def main() -> None:
    ms.set_context(
        mode=ms.PYNATIVE_MODE if "pynative" in sys.argv else ms.GRAPH_MODE, device_target="CPU"
    )
    init()
    rank, size = get_rank(), get_group_size()
    ms.set_seed(1)
    net = Net()
    for step in range(3):
        scale = 100 if step == 2 and rank == 1 else 1
        x = Tensor(np.random.RandomState(step * size + rank).randn(4, 8).astype(np.float32) * scale)
        print(rank, step, float(ops.reduce_mean(net(x)).asnumpy()), flush=True)


main()
