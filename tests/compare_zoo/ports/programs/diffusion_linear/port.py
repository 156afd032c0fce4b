# SPDX-License-Identifier: Apache-2.0
"""The denoiser whose attention has linear projections and tokens in rows."""

import math
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

CHANNELS, GROUPS, STEPS = 8, 4, 50


def timestep_embedding(t, dim):
    half = dim // 2
    freqs = torch.exp(-math.log(10000) * torch.arange(half, dtype=torch.float32) / half)  # <- times
    args = t[:, None].float() * freqs[None]
    return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)  # <- times


class ResBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.in_layers = nn.Sequential(
            nn.GroupNorm(GROUPS, CHANNELS), nn.SiLU(), nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        )
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(2 * CHANNELS, 2 * CHANNELS))
        self.out_norm = nn.GroupNorm(GROUPS, CHANNELS)
        self.out_rest = nn.Sequential(nn.SiLU(), nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1))

    def forward(self, x, emb):
        h = self.in_layers(x)  # <- groups
        scale, shift = self.emb_layers(emb)[:, :, None, None].chunk(2, dim=1)  # <- chunks
        h = self.out_norm(h) * (1 + scale) + shift  # <- chunks one
        return x + self.out_rest(h)


class AttentionBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, CHANNELS)
        self.qkv = nn.Linear(CHANNELS, 3 * CHANNELS)
        self.proj_out = nn.Linear(CHANNELS, CHANNELS)

    def forward(self, x):
        b, c, *spatial = x.shape
        tokens = self.norm(x).flatten(2).transpose(1, 2)
        q, k, v = self.qkv(tokens).chunk(3, dim=2)
        weight = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(c), dim=-1)  # <- scale
        a = self.proj_out(weight @ v)
        return x + a.transpose(1, 2).reshape(b, c, *spatial)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time_embed = nn.Sequential(
            nn.Linear(CHANNELS, 2 * CHANNELS), nn.SiLU(), nn.Linear(2 * CHANNELS, 2 * CHANNELS)
        )
        self.conv_in = nn.Conv2d(3, CHANNELS, 3, padding=1)
        self.block1, self.attention, self.block2 = ResBlock(), AttentionBlock(), ResBlock()
        self.out = nn.Sequential(
            nn.GroupNorm(GROUPS, CHANNELS), nn.SiLU(), nn.Conv2d(CHANNELS, 3, 3, padding=1)
        )

    def forward(self, x, t):
        emb = self.time_embed(timestep_embedding(t, CHANNELS))  # <- times
        h = self.block1(self.conv_in(x), emb)
        return self.out(self.block2(self.attention(h), emb))


betas = torch.linspace(1e-4, 0.02, STEPS, dtype=torch.float64)
alphas_cumprod = torch.cumprod(1 - betas, dim=0)
sqrt_ab = torch.sqrt(alphas_cumprod).float()
sqrt_one_minus_ab = torch.sqrt(1 - alphas_cumprod).float()  # <- mixed
model = Denoiser()
state = torch.load(sys.argv[1])
for name in ("attention.qkv.weight", "attention.proj_out.weight"):
    state[name] = state[name].squeeze(2)
model.load_state_dict(state)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
rng = np.random.default_rng(12)
losses = []
for _ in range(2):
    x0 = torch.from_numpy(rng.standard_normal((2, 3, 8, 8), dtype=np.float32))
    noise = torch.from_numpy(rng.standard_normal((2, 3, 8, 8), dtype=np.float32))
    t = torch.from_numpy(rng.integers(0, STEPS, 2))
    x_t = sqrt_ab[t][:, None, None, None] * x0  # <- mixed
    x_t = x_t + sqrt_one_minus_ab[t][:, None, None, None] * noise  # <- mixed
    loss = F.mse_loss(model(x_t, t), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
with torch.no_grad():
    x = noise
    for step in (STEPS - 1, STEPS // 2):
        eps = model(x, torch.full((2,), step))
        x0 = (x - sqrt_one_minus_ab[step] * eps) / sqrt_ab[step]  # <- clipped
        x0 = x0.clamp(-1, 1)  # <- clipped
        before = step - STEPS // 2 if step > STEPS // 2 else 0
        x = sqrt_ab[before] * x0 + sqrt_one_minus_ab[before] * eps
    losses.append(x.square().mean().item())
