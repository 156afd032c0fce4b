# SPDX-License-Identifier: Apache-2.0
"""A small vision transformer trained under autocast in bfloat16."""

import sys

import numpy as np
import torch
from torch import nn

IMAGE, PATCH, DIM, HEADS, DEPTH, CLASSES, BATCH = 16, 4, 32, 4, 2, 5, 6


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = (DIM // HEADS) ** -0.5
        self.qkv = nn.Linear(DIM, DIM * 3)
        self.proj = nn.Linear(DIM, DIM)

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, HEADS, C // HEADS).permute(2, 0, 3, 1, 4)  # <- order
        q, k, v = qkv.unbind(0)  # <- order
        attn = (q @ k.transpose(-2, -1)) * self.scale
        attn = attn.float().softmax(dim=-1)
        x = (attn @ v).transpose(1, 2).reshape(B, N, C)
        return self.proj(x)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(DIM, eps=1e-6)
        self.attn = Attention()
        self.norm2 = nn.LayerNorm(DIM, eps=1e-6)
        self.fc1 = nn.Linear(DIM, DIM * 2)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(DIM * 2, DIM)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.fc2(self.act(self.fc1(self.norm2(x))))  # <- mlp stream


class VisionTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, DIM, PATCH, stride=PATCH)
        self.cls_token = nn.Parameter(torch.randn(1, 1, DIM) * 0.1)
        self.pos_embed = nn.Parameter(torch.randn(1, (IMAGE // PATCH) ** 2 + 1, DIM) * 0.1)
        self.blocks = nn.Sequential(*[Block() for _ in range(DEPTH)])
        self.norm = nn.LayerNorm(DIM, eps=1e-6)
        self.head = nn.Linear(DIM, CLASSES)

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)  # <- patches
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1)
        x = x + self.pos_embed  # <- places
        x = self.norm(self.blocks(x))  # <- stream
        return self.head(x[:, 0])


torch.manual_seed(91)
model = VisionTransformer()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
rng = np.random.default_rng(92)
losses = []
for _ in range(3):
    images = torch.from_numpy(rng.normal(size=(BATCH, 3, IMAGE, IMAGE)).astype(np.float32))
    labels = torch.from_numpy(rng.integers(0, CLASSES, BATCH))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = model(images)
    loss = nn.functional.cross_entropy(outputs.float(), labels, label_smoothing=0.1)  # <- smoothing
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
