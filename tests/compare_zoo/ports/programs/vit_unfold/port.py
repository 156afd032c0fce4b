# SPDX-License-Identifier: Apache-2.0
"""The vision transformer with patches unfolded and multiplied, and separate q, k and v."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

SIZE, PATCH, DIM, HEADS, DEPTH, CLASSES = 12, 4, 24, 3, 2, 6


class PatchEmbed(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(3 * PATCH * PATCH, DIM)

    def forward(self, x):
        x = F.unfold(x, PATCH, stride=PATCH).transpose(1, 2)  # <- patches
        return self.proj(x)  # <- patches


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = (DIM // HEADS) ** -0.5
        self.q, self.k, self.v = (nn.Linear(DIM, DIM) for _ in range(3))
        self.proj = nn.Linear(DIM, DIM)

    def forward(self, x):
        B, N, C = x.shape
        parts = (layer(x).view(B, N, HEADS, -1) for layer in (self.q, self.k, self.v))  # <- heads
        q, k, v = (part.transpose(1, 2) for part in parts)  # <- heads
        attn = (q * self.scale) @ k.transpose(-2, -1)  # <- heads scale
        x = attn.softmax(dim=-1) @ v  # <- scale
        return self.proj(x.transpose(1, 2).reshape(B, N, C))


class LayerScale(nn.Module):
    def __init__(self):
        super().__init__()
        self.gamma = nn.Parameter(torch.full((DIM,), 0.1))

    def forward(self, x):
        return x * self.gamma  # <- layer_scale


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(DIM, eps=1e-6)
        self.attn, self.ls1 = Attention(), LayerScale()
        self.norm2 = nn.LayerNorm(DIM, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM))
        self.ls2 = LayerScale()

    def forward(self, x):
        x = x + self.ls1(self.attn(self.norm1(x)))
        return x + self.ls2(self.mlp(self.norm2(x)))


class VisionTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch_embed = PatchEmbed()
        self.cls_token = nn.Parameter(torch.randn(1, 1, DIM) * 0.02)
        self.pos_embed = nn.Parameter(torch.randn(1, 1 + (SIZE // PATCH) ** 2, DIM) * 0.02)
        self.blocks = nn.Sequential(*(Block() for _ in range(DEPTH)))
        self.norm = nn.LayerNorm(DIM, eps=1e-6)
        self.head = nn.Linear(DIM, CLASSES)

    def forward(self, x):
        x = self.patch_embed(x)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1)  # <- position
        x = x + self.pos_embed  # <- position
        x = self.norm(self.blocks(x))  # <- pooled
        return self.head(x[:, 0])  # <- pooled


model = VisionTransformer()
state = torch.load(sys.argv[1])
kernel = state["patch_embed.proj.weight"]
state["patch_embed.proj.weight"] = kernel.flatten(1)  # <- patches
for name in [name for name in state if ".qkv." in name]:
    for part, value in zip("qkv", state.pop(name).chunk(3)):
        state[name.replace("qkv", part)] = value
model.load_state_dict(state)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
rng = np.random.default_rng(4)
losses = []
for step in range(2):
    images = torch.from_numpy(rng.integers(0, 256, (4, SIZE, SIZE, 3), dtype=np.uint8))
    images = images.permute(0, 3, 1, 2).float().div(255).sub(0.5).div(0.5)  # <- normalised
    labels = torch.from_numpy(rng.integers(0, CLASSES, 4))
    loss = F.cross_entropy(model(images), labels, label_smoothing=0.1)  # <- smoothing
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
