# SPDX-License-Identifier: Apache-2.0
"""The vision transformer with the casts written where they happen, and patches cut by hand."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

SIDE, CELL, WIDTH, N_HEADS, LAYERS, KINDS, COUNT = 16, 4, 32, 4, 2, 5, 6
HALF = torch.bfloat16


class HalfLinear(nn.Linear):
    """A product of halves from weights that are kept in full."""

    def forward(self, x):
        return F.linear(x.to(HALF), self.weight.to(HALF), self.bias.to(HALF))


class FullNorm(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.float())


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = FullNorm(WIDTH, eps=1e-6), FullNorm(WIDTH, eps=1e-6)
        self.qkv, self.proj = HalfLinear(WIDTH, 3 * WIDTH), HalfLinear(WIDTH, WIDTH)
        self.up, self.down = HalfLinear(WIDTH, 2 * WIDTH), HalfLinear(2 * WIDTH, WIDTH)

    def attend(self, x):
        batch, length, _ = x.shape
        qkv = self.qkv(x).view(batch, length, 3, N_HEADS, -1)  # <- order
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # <- order
        scores = q @ k.mT * (WIDTH // N_HEADS) ** -0.5
        weights = torch.softmax(scores.float(), -1)
        mixed = weights.to(HALF) @ v
        return self.proj(mixed.transpose(1, 2).flatten(2))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))  # <- mlp


class Vit(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = HalfLinear(3 * CELL * CELL, WIDTH)
        self.first = nn.Parameter(torch.zeros(WIDTH))
        self.places = nn.Parameter(torch.zeros(1 + (SIDE // CELL) ** 2, WIDTH))
        self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
        self.norm = FullNorm(WIDTH, eps=1e-6)
        self.head = HalfLinear(WIDTH, KINDS)

    def forward(self, images):
        n = SIDE // CELL
        cells = images.view(-1, 3, n, CELL, n, CELL)
        cells = cells.permute(0, 2, 4, 1, 3, 5).reshape(-1, n * n, 3 * CELL * CELL)  # <- patches
        x = self.patch(cells)  # <- patches
        x = torch.cat([self.first.expand(len(x), 1, -1), x.float()], dim=1)
        x = x + self.places  # <- places
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)  # <- stream
        return self.head(x[:, 0]).float()


def converted(state):
    new = {
        "patch.weight": state["patch_embed.weight"].flatten(1),
        "patch.bias": state["patch_embed.bias"],
        "first": state["cls_token"][0, 0],
        "places": state["pos_embed"][0],  # <- places
    }
    for kind in ("weight", "bias"):
        new[f"norm.{kind}"], new[f"head.{kind}"] = state[f"norm.{kind}"], state[f"head.{kind}"]
        for i in range(LAYERS):
            names = {"qkv": "attn.qkv", "proj": "attn.proj", "up": "fc1", "down": "fc2"}
            for mine, theirs in {**names, "norm1": "norm1", "norm2": "norm2"}.items():
                new[f"layers.{i}.{mine}.{kind}"] = state[f"blocks.{i}.{theirs}.{kind}"]
    return new


net = Vit()
net.load_state_dict(converted(torch.load(sys.argv[1])))
adamw = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=0.05)
rng = np.random.default_rng(92)
losses = []
for _ in range(3):
    images = torch.tensor(rng.normal(size=(COUNT, 3, SIDE, SIDE)).astype(np.float32))
    kinds = torch.tensor(rng.integers(0, KINDS, COUNT))
    log_probs = net(images).log_softmax(dim=-1)
    wanted = 0.9 * F.one_hot(kinds, KINDS) + 0.1 / KINDS  # <- smoothing
    loss = -(wanted * log_probs).sum(-1).mean()  # <- smoothing
    adamw.zero_grad()
    loss.backward()
    adamw.step()
    losses.append(loss.item())
