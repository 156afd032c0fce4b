# SPDX-License-Identifier: Apache-2.0
"""Inverted residuals with squeeze and excitation (MobileNetV3, Howard et al., 2019), in eval."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Unit(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.expand, self.bn1 = (
            nn.Conv2d(width, inner, 1, bias=False),
            nn.BatchNorm2d(inner, eps=1e-3),
        )
        self.depth = nn.Conv2d(inner, inner, 3, 1, 1, groups=inner, bias=False)
        self.bn2 = nn.BatchNorm2d(inner, eps=1e-3)
        self.fc1, self.fc2 = nn.Conv2d(inner, 4, 1), nn.Conv2d(4, inner, 1)
        self.project, self.bn3 = (
            nn.Conv2d(inner, width, 1, bias=False),
            nn.BatchNorm2d(width, eps=1e-3),
        )
        self.drop = nn.Dropout(0.2)

    def forward(self, x):
        y = F.hardswish(self.bn1(self.expand(x)))  # <- eps swish
        y = F.hardswish(self.bn2(self.depth(y)))  # <- eps swish unshifted
        s = F.relu(self.fc1(y.mean((2, 3), keepdim=True)))  # <- pooled
        y = y * F.hardsigmoid(self.fc2(s))  # <- gate
        return x + self.drop(self.bn3(self.project(y)))  # <- eps dropout


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.units = nn.Conv2d(3, 8, 3, 2, 1), nn.Sequential(Unit(8, 16), Unit(8, 24))
        self.head = nn.Linear(8, 6)

    def forward(self, x):
        return self.head(self.units(self.stem(x)).mean((2, 3)))


torch.manual_seed(19)
model = Net().eval()
for module in model.modules():
    if isinstance(module, nn.BatchNorm2d):
        nn.init.uniform_(module.running_mean, -0.5, 0.5)
        nn.init.uniform_(module.running_var, 0.1, 2.0)
        nn.init.uniform_(module.weight, 0.5, 1.5)
        nn.init.uniform_(module.bias, -0.5, 0.5)
torch.save(model.state_dict(), sys.argv[1])
rng = np.random.default_rng(23)
losses = []
with torch.no_grad():
    for _ in range(2):
        x = torch.from_numpy(rng.standard_normal((3, 3, 12, 12), dtype=np.float32))
        y = torch.from_numpy(rng.integers(0, 6, 3))
        losses.append(F.cross_entropy(model(x), y).item())
