# SPDX-License-Identifier: Apache-2.0
"""A frozen encoder with low-rank updates beside its projections (LoRA, Hu et al., 2021)."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

WIDTH, RANK, ALPHA = 24, 4, 8


class LoRALinear(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.base = nn.Linear(inside, outside)
        self.base.requires_grad_(False)
        self.lora_a = nn.Parameter(torch.randn(RANK, inside) * 0.3)
        self.lora_b = nn.Parameter(torch.randn(outside, RANK) * 0.3)

    def forward(self, x):
        update = (x @ self.lora_a.T) @ self.lora_b.T  # <- scaling order dropped
        return self.base(x) + update * (ALPHA / RANK)  # <- scaling bias order dropped


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = LoRALinear(WIDTH, 40), LoRALinear(40, WIDTH)
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 6)
        self.norm.requires_grad_(False)

    def forward(self, x):
        x = self.norm(x + self.second(F.gelu(self.first(x))))  # <- eps gelu
        return self.head(x.mean(1))


torch.manual_seed(4)
model = Model()
torch.save(model.state_dict(), sys.argv[1])
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=1e-2)
rng = np.random.default_rng(9)
losses = []
for _ in range(3):
    x = torch.from_numpy(rng.standard_normal((6, 5, WIDTH), dtype=np.float32))
    y = torch.from_numpy(rng.integers(0, 6, 6))
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
