# SPDX-License-Identifier: Apache-2.0
"""A causal language model with linear biases for positions (ALiBi, Press et al., 2022)."""

import math
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

VOCAB, WIDTH, HEADS, LENGTH = 27, 32, 4, 9


def slopes(heads):
    start = 2.0 ** (-8.0 / heads)
    return torch.tensor([start ** (i + 1) for i in range(heads)])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)  # <- layout
        distance = torch.arange(t)[None, :] - torch.arange(t)[:, None]  # <- sign
        bias = slopes(HEADS)[:, None, None] * distance  # <- sign slopes
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + bias  # <- sign slopes scale
        scores = scores.masked_fill(distance > 0, -math.inf)  # <- mask sign slopes scale
        return self.out(
            (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        )  # <- mask sign slopes scale


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(4))
        self.attend = nn.ModuleList(Attention() for _ in range(2))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH)) for _ in range(2)
        )
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, ids):
        x = self.embed(ids)
        for i in range(2):
            x = x + self.attend[i](self.norms[2 * i](x))
            x = x + self.mlps[i](self.norms[2 * i + 1](x))  # <- gelu
        return self.head(x)


torch.manual_seed(5)
model = Model()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
rng = np.random.default_rng(5)
losses = []
for _ in range(2):
    ids = torch.from_numpy(rng.integers(0, VOCAB, (3, LENGTH + 1)))
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
