# SPDX-License-Identifier: Apache-2.0
"""Model.train on a dataset, eight steps; prints each loss. Words: sink (dataset_sink_mode),
pynative, callback (recorded into the folder run by opscope's).
"""

from __future__ import annotations

import sys

import mindspore as ms
import numpy as np
from mindspore import dataset, nn, ops
from mindspore.train import Callback, Model

WORDS = sys.argv[1:]


class Source:
    """Sixteen samples. Arrays, not NumPy's scalars: MindSpore's dataset fails on those with NumPy
    2.
    """

    def __getitem__(self, number):
        return np.random.RandomState(number).randn(8).astype(np.float32), np.array(
            number % 4, np.int32
        )

    def __len__(self) -> int:
        return 16


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Dense(8, 8)
        self.second = nn.Dense(8, 4)

    def construct(self, x):
        return self.second(ops.relu(self.first(x)))


class Losses(Callback):
    def step_end(self, run_context) -> None:
        found = run_context.original_args()
        print(found.cur_step_num, float(found.net_outputs.asnumpy()).hex(), flush=True)


def main() -> None:
    ms.set_seed(1)
    ms.set_context(mode=ms.PYNATIVE_MODE if "pynative" in WORDS else ms.GRAPH_MODE)
    net = Net()
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    model = Model(net, loss, nn.Momentum(net.trainable_params(), 0.01, 0.9))
    samples = dataset.GeneratorDataset(Source(), ["x", "label"], shuffle=False).batch(4)
    callbacks = [Losses()]
    if "callback" in WORDS:
        from opscope.integrations.mindspore import OpscopeCallback

        callbacks.append(OpscopeCallback("run", values="none"))
    model.train(2, samples, callbacks=callbacks, dataset_sink_mode="sink" in WORDS)


main()
