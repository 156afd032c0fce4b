# SPDX-License-Identifier: Apache-2.0
"""ConvNeXt as Liu et al. (2022) released it: depthwise convolution, norm and products with channels
last, a norm with channels first between stages, layer scale, an average of the weights.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

DIMS, DEPTHS, CLASSES = (8, 12), (1, 2), 5


class LayerNorm(nn.Module):
    def __init__(self, dim, data_format="channels_last"):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.data_format, self.dim = data_format, dim

    def forward(self, x):
        if self.data_format == "channels_last":
            return F.layer_norm(x, (self.dim,), self.weight, self.bias, 1e-6)  # <- eps
        u = x.mean(1, keepdim=True)  # <- first_norm
        s = (x - u).pow(2).mean(1, keepdim=True)  # <- first_norm
        x = (x - u) / torch.sqrt(s + 1e-6)  # <- first_norm
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, kernel_size=7, padding=3, groups=dim)
        self.norm = LayerNorm(dim)
        self.pwconv1 = nn.Linear(dim, 4 * dim)
        self.pwconv2 = nn.Linear(4 * dim, dim)
        self.gamma = nn.Parameter(torch.full((dim,), 0.5))

    def forward(self, x):
        y = self.dwconv(x)  # <- kernel
        y = self.norm(y.permute(0, 2, 3, 1))  # <- eps
        y = F.gelu(self.pwconv1(y))
        y = self.gamma * self.pwconv2(y)  # <- gamma
        return x + y.permute(0, 3, 1, 2)  # <- residual


class ConvNeXt(nn.Module):
    def __init__(self):
        super().__init__()
        stem = nn.Sequential(nn.Conv2d(3, DIMS[0], 4, 4), LayerNorm(DIMS[0], "channels_first"))
        between = nn.Sequential(LayerNorm(DIMS[0], "channels_first"), nn.Conv2d(*DIMS, 2, 2))
        self.downsample_layers = nn.ModuleList([stem, between])
        self.stages = nn.ModuleList(
            nn.Sequential(*(Block(dim) for _ in range(depth))) for dim, depth in zip(DIMS, DEPTHS)
        )
        self.norm = nn.LayerNorm(DIMS[-1], eps=1e-6)
        self.head = nn.Linear(DIMS[-1], CLASSES)

    def forward(self, x):
        for down, stage in zip(self.downsample_layers, self.stages):
            x = stage(down(x))  # <- kernel
        return self.head(self.norm(x.mean([-2, -1])))  # <- pool


torch.manual_seed(8)
model = ConvNeXt()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
average = {name: value.clone() for name, value in model.state_dict().items()}
rng = np.random.default_rng(6)
losses = []
for _ in range(3):
    x = torch.from_numpy(rng.standard_normal((4, 3, 16, 16), dtype=np.float32))
    y = torch.from_numpy(rng.integers(0, CLASSES, 4))
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- nesterov
    for name, value in model.state_dict().items():
        average[name].mul_(0.9).add_(value, alpha=0.1)  # <- average
    losses.append(loss.item())
model.load_state_dict(average)
with torch.no_grad():
    losses.append(F.cross_entropy(model(x), y).item())  # <- average
