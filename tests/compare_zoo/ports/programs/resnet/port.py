# SPDX-License-Identifier: Apache-2.0
"""The same network with the channels last, as a team writes it that comes from TensorFlow."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def conv(x, kernel, stride=1):
    """x: N, H, W, C; kernel: H, W, in, out."""
    x, pad = x.permute(0, 3, 1, 2), kernel.shape[0] // 2  # <- padding
    y = F.conv2d(x, kernel.permute(3, 2, 0, 1), None, stride, pad)  # <- padding
    return y.permute(0, 2, 3, 1)


class Norm(nn.Module):
    def __init__(self, channels, eps=1e-5, decay=0.9):
        super().__init__()
        self.gamma, self.beta = (
            nn.Parameter(torch.ones(channels)),
            nn.Parameter(torch.zeros(channels)),
        )
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("var", torch.ones(channels))
        self.eps, self.decay = eps, decay

    def forward(self, x):
        mean, var = self.mean, self.var
        if self.training:
            flat = x.flatten(0, 2)
            mean, var = flat.mean(0), flat.var(0, unbiased=False)  # <- frozen
            with torch.no_grad():
                count = len(flat)
                unbiased = var * count / (count - 1)
                self.mean.mul_(self.decay).add_(mean * (1 - self.decay))  # <- momentum
                self.var.mul_(self.decay).add_(unbiased * (1 - self.decay))  # <- momentum
        return (x - mean) * torch.rsqrt(var + self.eps) * self.gamma + self.beta  # <- eps frozen


class Unit(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(3, 3, inside, outside))
        self.w2 = nn.Parameter(torch.empty(3, 3, outside, outside))
        self.n1, self.n2 = Norm(outside), Norm(outside)
        self.stride, self.projects = stride, inside != outside
        if self.projects:
            self.w3, self.n3 = nn.Parameter(torch.empty(1, 1, inside, outside)), Norm(outside)

    def forward(self, x):
        short = self.n3(conv(x, self.w3, self.stride)) if self.projects else x  # <- eps momentum
        x = torch.relu(self.n1(conv(x, self.w1, self.stride)))  # <- padding eps frozen momentum
        x = self.n2(conv(x, self.w2))  # <- padding eps frozen momentum
        return torch.relu(x + short)  # <- order


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.n = nn.Parameter(torch.empty(3, 3, 3, 8)), Norm(8)
        self.units = nn.Sequential(Unit(8, 8, 1), Unit(8, 12, 2))
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        x = self.units(torch.relu(self.n(conv(x, self.w))))  # <- eps padding frozen momentum
        return self.head(x.mean(1).mean(1))  # <- pool


def carried(old):
    norm = {"weight": "gamma", "bias": "beta", "running_mean": "mean", "running_var": "var"}
    places = {"stem": "w", "bn": "n", "fc": "head"}
    for i in (1, 2):
        for theirs, mine in (("conv1", "w1"), ("bn1", "n1"), ("conv2", "w2"), ("bn2", "n2")):
            places[f"layer{i}.{theirs}"] = f"units.{i - 1}.{mine}"
    places |= {"layer2.down.0": "units.1.w3", "layer2.down.1": "units.1.n3"}
    new = {}
    for name, value in old.items():
        place, _, kind = name.rpartition(".")
        if value.dim() == 4:
            new[places[place]] = value.permute(2, 3, 1, 0)
        elif place == "fc":
            new[f"head.{kind}"] = value
        elif kind in norm:
            new[f"{places[place]}.{norm[kind]}"] = value
    return new


net = Net()
net.load_state_dict(carried(torch.load(sys.argv[1])))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
rng = np.random.default_rng(2)
losses = []
for _ in range(2):
    images = torch.from_numpy(rng.standard_normal((4, 3, 10, 10), dtype=np.float32))
    images = images.permute(0, 2, 3, 1)
    labels = torch.from_numpy(rng.integers(0, 5, 4))
    loss = F.cross_entropy(net(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
net.eval()
with torch.no_grad():
    losses.append(F.cross_entropy(net(images), labels).item())
