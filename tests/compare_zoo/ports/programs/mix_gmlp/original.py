# SPDX-License-Identifier: Apache-2.0
"""gMLP image classifier with a spatial gating unit, AdamW and a warmup + cosine schedule."""

import math
import sys

import torch
from torch import nn


class SpatialGatingUnit(nn.Module):
    def __init__(self, d_ffn, seq_len):
        super().__init__()
        self.norm = nn.LayerNorm(d_ffn)
        self.spatial_proj = nn.Conv1d(seq_len, seq_len, kernel_size=1)
        nn.init.normal_(self.spatial_proj.weight, std=0.2)
        nn.init.constant_(self.spatial_proj.bias, 1.0)

    def forward(self, x):
        u, v = x.chunk(2, dim=-1)  # <- gate_halves
        v = self.norm(v)  # <- gate_halves
        v = self.spatial_proj(v)  # <- spatial_axis
        return u * v  # <- gate_halves


class gMLPBlock(nn.Module):
    def __init__(self, d_model, d_ffn, seq_len):
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.channel_proj1 = nn.Linear(d_model, d_ffn * 2)
        self.act = nn.GELU()  # <- quick_gelu
        self.sgu = SpatialGatingUnit(d_ffn, seq_len)
        self.channel_proj2 = nn.Linear(d_ffn, d_model)

    def forward(self, x):
        residual = x
        x = self.norm(x)
        x = self.act(self.channel_proj1(x))  # <- quick_gelu
        x = self.sgu(x)
        x = self.channel_proj2(x)
        return x + residual


class gMLPForImageClassification(nn.Module):
    def __init__(self, image=12, patch=4, d_model=16, d_ffn=9, classes=5, layers=2):
        super().__init__()
        n = (image // patch) ** 2
        self.patcher = nn.Conv2d(3, d_model, kernel_size=patch, stride=patch)
        self.blocks = nn.Sequential(*[gMLPBlock(d_model, d_ffn, n) for _ in range(layers)])
        self.norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, classes)

    def forward(self, x):
        x = self.patcher(x).flatten(2).transpose(1, 2)
        x = self.norm(self.blocks(x))
        return self.head(x.mean(dim=1))


def warmup_cosine(step, warmup=2, total=6):
    if step < warmup:
        return (step + 1) / warmup  # <- warmup_start
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


torch.manual_seed(3)
model = gMLPForImageClassification()
torch.save(model.state_dict(), sys.argv[1])

g = torch.Generator().manual_seed(5)
images = torch.randn(4, 8, 3, 12, 12, generator=g)
labels = torch.randint(0, 5, (4, 8), generator=g)

criterion = nn.CrossEntropyLoss(label_smoothing=0.1)  # <- smoothing
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, betas=(0.9, 0.99), weight_decay=0.05)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, warmup_cosine)  # <- warmup_start

losses = []
for x, y in zip(images, labels):
    optimizer.zero_grad(set_to_none=True)
    loss = criterion(model(x), y)  # <- smoothing
    loss.backward()
    optimizer.step()  # <- warmup_start
    scheduler.step()
    losses.append(loss.item())
print(losses)
