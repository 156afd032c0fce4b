# SPDX-License-Identifier: Apache-2.0
"""A small residual network (He et al., 2016)."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Basic(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.down = None
        if stride != 1 or inside != outside:
            self.down = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x):
        rest = x if self.down is None else self.down(x)  # <- eps momentum
        y = F.relu(self.bn1(self.conv1(x)))  # <- eps padding frozen momentum
        y = self.bn2(self.conv2(y))  # <- eps padding frozen momentum
        return F.relu(y + rest)  # <- order


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)
        self.layer1, self.layer2 = Basic(8, 8, 1), Basic(8, 12, 2)
        self.fc = nn.Linear(12, 5)

    def forward(self, x):
        x = F.relu(self.bn(self.stem(x)))  # <- padding eps frozen momentum
        x = self.layer2(self.layer1(x))
        return self.fc(x.mean((2, 3)))  # <- pool


torch.manual_seed(0)
model = ResNet()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
rng = np.random.default_rng(2)
losses = []
for _ in range(2):
    images = torch.from_numpy(rng.standard_normal((4, 3, 10, 10), dtype=np.float32))
    labels = torch.from_numpy(rng.integers(0, 5, 4))
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
model.eval()
with torch.no_grad():
    losses.append(F.cross_entropy(model(images), labels).item())
