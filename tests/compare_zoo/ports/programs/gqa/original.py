# SPDX-License-Identifier: Apache-2.0
"""Grouped-query attention (Ainslie et al., 2023) with RMS norms and SwiGLU, heads repeated."""

import math
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

VOCAB, WIDTH, HEADS, GROUPS, SIZE = 37, 32, 4, 2, 8


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(WIDTH) + 0.5)

    def forward(self, x):
        variance = x.pow(2).mean(-1, keepdim=True)  # <- eps
        return self.weight * (x * torch.rsqrt(variance + 1e-6))  # <- eps offset


def repeat_kv(x, times):
    n, groups, t, d = x.shape
    return (
        x[:, :, None].expand(n, groups, times, t, d).reshape(n, groups * times, t, d)
    )  # <- repeat


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.o_proj = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.k_proj, self.v_proj = (nn.Linear(WIDTH, GROUPS * SIZE, bias=False) for _ in range(2))

    def forward(self, x):
        n, t, _ = x.shape
        q = self.q_proj(x).view(n, t, HEADS, SIZE).transpose(1, 2)
        k = self.k_proj(x).view(n, t, GROUPS, SIZE).transpose(1, 2)  # <- swapped
        v = self.v_proj(x).view(n, t, GROUPS, SIZE).transpose(1, 2)  # <- swapped
        k, v = repeat_kv(k, HEADS // GROUPS), repeat_kv(v, HEADS // GROUPS)  # <- repeat swapped
        scores = q @ k.transpose(2, 3) / math.sqrt(SIZE)  # <- scale repeat swapped
        mask = torch.full((t, t), torch.finfo(torch.float32).min).triu(1)  # <- mask
        weights = (scores + mask).softmax(-1)  # <- mask scale
        return self.o_proj((weights @ v).transpose(1, 2).reshape(n, t, WIDTH))  # <- repeat mask


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2, self.attn = RMSNorm(), RMSNorm(), Attention()
        self.gate, self.up = (nn.Linear(WIDTH, 48, bias=False) for _ in range(2))
        self.down = nn.Linear(48, WIDTH, bias=False)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))  # <- activation halves


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(VOCAB, WIDTH), RMSNorm()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


torch.manual_seed(11)
model = Model()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
rng = np.random.default_rng(6)
losses = []
for _ in range(2):
    ids = torch.from_numpy(rng.integers(0, VOCAB, (2, 11)))
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
