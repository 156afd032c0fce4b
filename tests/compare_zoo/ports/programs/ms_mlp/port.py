# SPDX-License-Identifier: Apache-2.0
"""A perceptron with layer norms, GELU and Adam."""

import sys

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Dense(16, 32)
        self.norm = nn.LayerNorm((32,), epsilon=1e-5)  # <- eps
        self.fc2 = nn.Dense(32, 32, has_bias=False)
        self.bn = nn.BatchNorm1d(32, momentum=0.9)  # <- momentum
        self.fc3 = nn.Dense(32, 4)
        self.gelu = nn.GELU(approximate=False)  # <- gelu

    def construct(self, x):
        x = self.gelu(self.norm(self.fc1(x)))  # <- gelu eps
        x = ops.relu(self.bn(self.fc2(x)))  # <- momentum
        return self.fc3(x)


NAMES = {
    "norm.weight": "norm.gamma",
    "norm.bias": "norm.beta",
    "bn.weight": "bn.gamma",
    "bn.bias": "bn.beta",
    "bn.running_mean": "bn.moving_mean",
    "bn.running_var": "bn.moving_variance",
}
ms.set_context(mode=ms.PYNATIVE_MODE)
w = np.load(sys.argv[1])
net = Net()
held = dict(net.parameters_and_names())
for name in w.files:
    if "num_batches" not in name:
        held[NAMES.get(name, name)].set_data(Tensor(w[name]))
opt = nn.Adam(net.trainable_params(), learning_rate=1e-2)  # <- rate
loss_fn = nn.CrossEntropyLoss(reduction="mean")  # <- sum


def forward(x, y):
    return loss_fn(net(x), y)  # <- sum


grad = ms.value_and_grad(forward, None, opt.parameters)
r = np.random.RandomState(0)
losses = []
net.set_train(True)
for step in range(3):
    x = Tensor(r.randn(8, 16).astype(np.float32))
    y = Tensor(r.randint(0, 4, 8).astype(np.int32))
    loss, grads = grad(x, y)
    opt(grads)  # <- rate
    losses.append(float(loss.asnumpy()))
net.set_train(False)
losses.append(float(net(x).square().mean().asnumpy()))  # <- momentum
print(losses)
