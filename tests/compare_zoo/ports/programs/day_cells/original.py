# SPDX-License-Identifier: Apache-2.0
"""An image classifier in the style of MindSpore: cells with construct, "same" padding, Momentum."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

CLASSES, SIDE, BATCH = 6, 14, 6


class Cell(nn.Module):
    def forward(self, *inputs):
        return self.construct(*inputs)


class Conv2d(Cell):
    """Pads with zeros so that a stride divides the size, more at the end, as pad_mode="same"."""

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, group=1, has_bias=False):
        super().__init__()
        shape = (out_channels, in_channels // group, kernel_size, kernel_size)
        self.weight = nn.Parameter(torch.randn(shape) * (2 / np.prod(shape[1:])) ** 0.5)
        self.bias = nn.Parameter(torch.zeros(out_channels)) if has_bias else None
        self.kernel_size, self.stride, self.group = kernel_size, stride, group

    def construct(self, x):
        size = x.shape[-1]
        total = max((-(-size // self.stride) - 1) * self.stride + self.kernel_size - size, 0)
        before, after = total // 2, total - total // 2
        x = F.pad(x, (before, after, before, after))  # <- same
        return F.conv2d(x, self.weight, self.bias, self.stride, groups=self.group)  # <- same


class BatchNorm2d(Cell):
    def __init__(self, num_features, eps=1e-5, momentum=0.9):
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.gamma = nn.Parameter(torch.ones(num_features))
        self.beta = nn.Parameter(torch.zeros(num_features))
        self.register_buffer("moving_mean", torch.zeros(num_features))
        self.register_buffer("moving_variance", torch.ones(num_features))

    def construct(self, x):
        return F.batch_norm(  # <- eps
            x,
            self.moving_mean,
            self.moving_variance,
            self.gamma,
            self.beta,
            self.training,
            1 - self.momentum,
            self.eps,
        )


class DepthwiseSeparable(Cell):
    def __init__(self, channels, out_channels, stride):
        super().__init__()
        self.depthwise = Conv2d(channels, channels, 3, stride, group=channels)
        self.bn1 = BatchNorm2d(channels)
        self.pointwise = Conv2d(channels, out_channels, 1)
        self.bn2 = BatchNorm2d(out_channels)

    def construct(self, x):
        x = F.relu6(self.bn1(self.depthwise(x)))
        return F.relu6(self.bn2(self.pointwise(x)))  # <- relu6


class Network(Cell):
    def __init__(self):
        super().__init__()
        self.conv = Conv2d(3, 8, 3, 2)
        self.bn = BatchNorm2d(8)
        self.blocks = nn.ModuleList([DepthwiseSeparable(8, 12, 1), DepthwiseSeparable(12, 16, 2)])
        self.norm = nn.LayerNorm(16 * 16, eps=1e-7)
        self.dense = nn.Linear(16 * 16, CLASSES)

    def construct(self, x):
        x = F.relu6(self.bn(self.conv(x)))
        for block in self.blocks:
            x = block(x)
        x = x.flatten(1)  # <- flattened
        return self.dense(self.norm(x))  # <- flattened


class Momentum:
    """m = mu * m + g + wd * w; w -= lr * m, as MindSpore's Momentum."""

    def __init__(self, params, learning_rate, momentum, weight_decay):
        self.params = list(params)
        self.learning_rate, self.momentum, self.decay = learning_rate, momentum, weight_decay
        self.moments = [torch.zeros_like(p) for p in self.params]

    @torch.no_grad()
    def construct(self, gradients):
        for p, m, g in zip(self.params, self.moments, gradients):
            m.mul_(self.momentum).add_(g + self.decay * p)  # <- dampening
            p.sub_(self.learning_rate * m)  # <- dampening


torch.manual_seed(101)
net = Network()
torch.save(net.state_dict(), sys.argv[1])
net.train()
loss_fn = nn.CrossEntropyLoss(reduction="mean")
optimizer = Momentum(net.parameters(), learning_rate=0.02, momentum=0.9, weight_decay=1e-3)
rng = np.random.default_rng(102)
losses = []
for _ in range(4):
    data = torch.from_numpy(rng.uniform(0, 255, (BATCH, 3, SIDE, SIDE)).astype(np.float32))
    label = torch.from_numpy(rng.integers(0, CLASSES, BATCH))
    data = (data / 255 - 0.5) / 0.25  # <- scaled
    loss = loss_fn(net(data), label)
    optimizer.construct(torch.autograd.grad(loss, optimizer.params))
    losses.append(loss.item())
