# SPDX-License-Identifier: Apache-2.0
"""A Perceiver as Jaegle et al. (2021) have it: pixels with Fourier features of their positions,
latents that attend to them and to one another, layers that share weights, an average at the end.
"""

import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

SIDE, CHANNELS, BANDS, MAX_FREQ = 8, 3, 4, 8.0
LATENTS, DIM, HEADS, DIM_HEAD, CLASSES, DEPTH = 10, 24, 4, 8, 6, 2
INPUT_DIM = CHANNELS + 2 * (2 * BANDS + 1)


def fourier_encode(pos):
    scales = torch.linspace(1.0, MAX_FREQ / 2, BANDS)  # <- bands
    angles = pos[..., None] * scales * math.pi  # <- bands
    return torch.cat([angles.sin(), angles.cos(), pos[..., None]], dim=-1)  # <- bands


class PreNorm(nn.Module):
    def __init__(self, fn, context_dim=None):
        super().__init__()
        self.fn, self.norm = fn, nn.LayerNorm(DIM)
        self.norm_context = nn.LayerNorm(context_dim) if context_dim else None

    def forward(self, x, context=None):
        x = self.norm(x)
        if self.norm_context is None:
            return self.fn(x)
        return self.fn(x, context=self.norm_context(context))  # <- context


class GEGLU(nn.Module):
    def forward(self, x):
        x, gates = x.chunk(2, dim=-1)  # <- halves
        return x * F.gelu(gates)  # <- halves gelu


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(DIM, 4 * DIM), GEGLU(), nn.Linear(2 * DIM, DIM))

    def forward(self, x):
        return self.net(x)


class Attention(nn.Module):
    def __init__(self, heads, context_dim=DIM):
        super().__init__()
        self.heads, self.scale = heads, DIM_HEAD**-0.5
        self.to_q = nn.Linear(DIM, heads * DIM_HEAD, bias=False)
        self.to_kv = nn.Linear(context_dim, 2 * heads * DIM_HEAD, bias=False)
        self.to_out = nn.Linear(heads * DIM_HEAD, DIM)

    def forward(self, x, context=None):
        context = x if context is None else context
        b = x.shape[0]
        k, v = self.to_kv(context).chunk(2, dim=-1)  # <- swapped
        q, k, v = (
            t.view(b, -1, self.heads, DIM_HEAD).transpose(1, 2) for t in (self.to_q(x), k, v)
        )
        sim = q @ k.transpose(-1, -2) * self.scale  # <- scale swapped
        out = sim.softmax(dim=-1) @ v
        return self.to_out(out.transpose(1, 2).reshape(b, -1, self.heads * DIM_HEAD))


class Perceiver(nn.Module):
    def __init__(self):
        super().__init__()
        self.latents = nn.Parameter(torch.randn(LATENTS, DIM))
        self.cross_attn = PreNorm(Attention(1, INPUT_DIM), INPUT_DIM)
        self.cross_ff = PreNorm(FeedForward())
        self.self_attn = PreNorm(Attention(HEADS))
        self.self_ff = PreNorm(FeedForward())
        self.norm, self.to_logits = nn.LayerNorm(DIM), nn.Linear(DIM, CLASSES)

    def forward(self, data):
        b = data.shape[0]
        axis = torch.linspace(-1.0, 1.0, SIDE)
        pos = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), dim=-1)
        enc = fourier_encode(pos).view(1, SIDE, SIDE, -1).expand(b, -1, -1, -1)
        data = torch.cat([data, enc], dim=-1).view(b, SIDE * SIDE, -1)
        x = self.latents.expand(b, -1, -1)
        for _ in range(DEPTH):
            x = self.cross_attn(x, context=data) + x
            x = self.cross_ff(x) + x
            x = self.self_attn(x) + x  # <- residual
            x = self.self_ff(x) + x
        return self.to_logits(self.norm(x.mean(dim=1)))


rng = np.random.default_rng(51)
images = rng.standard_normal((3, 8, SIDE, SIDE, CHANNELS), dtype=np.float32)
targets = rng.integers(0, CLASSES, (3, 8))
torch.manual_seed(23)
model = Perceiver()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.1)
losses = []
for step in range(3):
    optimizer.zero_grad()
    logits = model(torch.from_numpy(images[step]))
    loss = F.cross_entropy(logits, torch.from_numpy(targets[step]))
    loss.backward()
    optimizer.step()  # <- decay
    losses.append(loss.item())
