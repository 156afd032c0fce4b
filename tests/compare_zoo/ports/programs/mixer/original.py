# SPDX-License-Identifier: Apache-2.0
"""MLP-Mixer (Tolstikhin et al., 2021)."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

PATCH, WIDTH, TOKENS = 4, 16, 9


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.t1, self.t2 = nn.Linear(TOKENS, 12), nn.Linear(12, TOKENS)
        self.c1, self.c2 = nn.Linear(WIDTH, 40), nn.Linear(40, WIDTH)

    def forward(self, x):
        y = self.norm1(x).transpose(1, 2)  # <- eps untransposed
        x = x + self.t2(F.gelu(self.t1(y))).transpose(1, 2)  # <- gelu untransposed
        return x + self.c2(F.gelu(self.c1(self.norm2(x))))  # <- eps gelu skip


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 5)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)  # <- patches
        return self.head(self.norm(self.blocks(x)).mean(1))  # <- pooled eps


torch.manual_seed(17)
model = Mixer()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
rng = np.random.default_rng(21)
losses = []
for _ in range(2):
    x = torch.from_numpy(rng.standard_normal((4, 3, 12, 12), dtype=np.float32))
    y = torch.from_numpy(rng.integers(0, 5, 4))
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
