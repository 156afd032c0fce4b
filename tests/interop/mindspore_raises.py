# SPDX-License-Identifier: Apache-2.0
"""Nets whose graph raises while it runs; the word on the command line says which, graphs unless it
begins with jit.

gather: an index out of range in step 2; solve: a matrix that is not invertible in step 2; segment:
a kernel that says only that it failed; first: the first kernel of the first graph; jit_cell,
jit_function: compiled parts of a PyNative program; python: the program raises between two graphs.
"""

from __future__ import annotations

import os
import signal
import sys

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

WORD = sys.argv[1]


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.table = Parameter(
            Tensor(np.random.RandomState(0).randn(6, 4).astype(np.float32)), name="table"
        )
        self.dense = nn.Dense(4, 4)

    def construct(self, x, index):
        h = ops.tanh(self.dense(x))
        if WORD == "gather":
            picked = ops.gather(self.table, index + 1, 0)  # <- gather
        elif WORD == "solve":
            matrix = h * ops.cast(ops.reduce_max(index) < 5, ms.float32)
            picked = ops.MatrixSolve()(matrix, h)  # <- solve
        elif WORD == "segment":
            picked = ops.unsorted_segment_sum(h, index, 5)  # <- segment
        else:
            picked = h
        return ops.reduce_mean(h) + ops.reduce_mean(ops.exp(picked))


class Words(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.words = Parameter(
            Tensor(np.random.RandomState(0).randn(6, 4).astype(np.float32)), name="words"
        )
        self.places = Parameter(
            Tensor(np.random.RandomState(1).randn(8, 4).astype(np.float32)), name="places"
        )

    def construct(self, ids, spots):
        places = ops.gather(self.places, spots, 0)
        return ops.gather(self.words, ids, 0) + places  # <- first


class CompiledWords(Words):
    @ms.jit
    def construct(self, ids, spots):
        places = ops.gather(self.places, spots, 0)
        return ops.gather(self.words, ids, 0) + places  # <- jit_cell


@ms.jit
def pick(table, index):
    return ops.gather(table * 2, index, 0)  # <- jit_function


def train() -> None:
    net = Net()
    step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.01))
    for number in range(4):
        x = Tensor(np.random.RandomState(number).randn(4, 4).astype(np.float32))
        last = 9 if number == 2 and WORD != "python" else 3
        print(
            number,
            float(step(x, Tensor(np.array([0, 1, 2, last], np.int32))).asnumpy()).hex(),
            flush=True,
        )
        if number == 2 and WORD == "python":
            raise ValueError("Gather no more data")


def square(x):
    if WORD == "dies" and x.max() > 3:
        os.kill(os.getpid(), signal.SIGSEGV)
    return x * x


def eager() -> None:
    custom = ops.Custom(square, out_shape=lambda x: x, out_dtype=lambda x: x, func_type="pyfunc")
    for last in (1, 2, 4):
        table = ops.relu(Tensor(np.full((4, 2), last, np.float32)))
        squares = custom(table)  # <- dies
        print(ops.gather(squares, Tensor([last], ms.int32), 0).asnumpy())  # <- eager


def main() -> None:
    ms.set_seed(1)
    ms.set_context(
        mode=ms.PYNATIVE_MODE if WORD.startswith(("jit", "eager", "dies")) else ms.GRAPH_MODE
    )
    spots = Tensor([1, 7], ms.int32)
    if WORD == "first":
        Words()(Tensor([0, 6], ms.int32), spots)
    elif WORD == "jit_cell":
        words, dense = CompiledWords(), nn.Dense(4, 4)
        for last in (5, 6):
            dense(words(Tensor([0, last], ms.int32), spots))
    elif WORD == "jit_function":
        table = ops.tanh(Tensor(np.ones((3, 4), np.float32)))
        for last in (2, 3):
            print(pick(table, Tensor([last], ms.int32)).asnumpy())
    elif WORD in {"eager", "dies"}:
        eager()
    else:
        train()


main()
