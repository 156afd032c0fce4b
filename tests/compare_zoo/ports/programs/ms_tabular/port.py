# SPDX-License-Identifier: Apache-2.0
"""The tabular regressor on MindSpore (PyNative mode)."""

import sys

import mindspore as ms
import numpy as np
from mindspore import nn, ops

ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")
SIZES, NUMERIC = (7, 11, 5), 6


class Tabular(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embeds = nn.CellList([nn.Embedding(n, 4) for n in SIZES])
        self.bn_cont = nn.BatchNorm1d(NUMERIC)  # <- train_mode
        self.fc1 = nn.Dense(12 + NUMERIC, 24)
        self.bn1 = nn.BatchNorm1d(24)  # <- train_mode
        self.fc2 = nn.Dense(24, 12)
        self.out = nn.Dense(12, 1)

    def construct(self, categories, numbers):
        parts = [embed(categories[:, n]) for n, embed in enumerate(self.embeds)]
        x = ops.cat(parts + [self.bn_cont(numbers)], axis=1)  # <- order train_mode
        x = self.bn1(ops.relu(self.fc1(x)))  # <- bn_order train_mode
        x = ops.elu(self.fc2(x))
        return self.out(x).squeeze(1)


net = Tabular()
params = {}
for name, value in np.load(sys.argv[1]).items():
    if name.startswith("embeds"):
        name = name.replace("weight", "embedding_table")
    elif name.startswith("bn"):
        name = name.replace("weight", "gamma").replace("bias", "beta")
    params[name] = ms.Parameter(ms.Tensor(value), name=name)
ms.load_param_into_net(net, params)
net.set_train()  # <- train_mode
optimizer = nn.Adagrad(net.trainable_params(), accum=0.01, learning_rate=0.02)  # <- accum
loss_fn = nn.SmoothL1Loss(beta=0.5, reduction="mean")  # <- beta


def forward_fn(categories, numbers, target):
    predicted = net(categories, numbers)
    return loss_fn(predicted, target)  # <- beta


grad_fn = ms.value_and_grad(forward_fn, None, optimizer.parameters)
random = np.random.RandomState(13)
losses = []
for _ in range(4):
    categories = np.stack([random.randint(0, n, 16) for n in SIZES], axis=1)
    numbers = (random.randn(16, NUMERIC) * 3 + 1).astype(np.float32)
    target = (numbers[:, 0] + categories[:, 1] * 0.3).astype(np.float32)
    loss, grads = grad_fn(ms.Tensor(categories, ms.int32), ms.Tensor(numbers), ms.Tensor(target))
    optimizer(grads)  # <- accum
    losses.append(float(loss.asnumpy()))
print(losses)
