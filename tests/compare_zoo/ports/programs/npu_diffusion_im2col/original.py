# SPDX-License-Identifier: Apache-2.0
"""A diffusion UNet with group norm and attention in the torch manner: v-prediction, Adam, an EMA of
the weights, and DDIM sampling with the averaged weights.
"""

import copy
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

BASE, TIME, STEPS, GROUPS = 16, 24, 100, 4


def timestep_embedding(t):
    freqs = torch.exp(-math.log(1000) * torch.arange(BASE // 2) / (BASE // 2))
    args = t[:, None] * freqs
    return torch.cat([torch.sin(args), torch.cos(args)], dim=-1)  # <- sin_cos


class ResBlock(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.norm1 = nn.GroupNorm(GROUPS, c_in)  # <- group_span
        self.conv1 = nn.Conv2d(c_in, c_out, 3, padding=1)
        self.emb = nn.Linear(TIME, 2 * c_out)
        self.norm2 = nn.GroupNorm(GROUPS, c_out)  # <- group_span
        self.conv2 = nn.Conv2d(c_out, c_out, 3, padding=1)
        self.skip = nn.Conv2d(c_in, c_out, 1)

    def forward(self, x, emb):
        h = self.conv1(F.silu(self.norm1(x)))  # <- group_span
        scale, shift = self.emb(F.silu(emb))[:, :, None, None].chunk(2, dim=1)
        h = self.norm2(h) * (1 + scale) + shift  # <- group_span
        return self.skip(x) + self.conv2(F.silu(h))


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, c)  # <- group_span
        self.qkv, self.proj = nn.Conv1d(c, 3 * c, 1), nn.Conv1d(c, c, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x).view(b, c, h * w)).chunk(3, dim=1)  # <- group_span
        weight = torch.einsum("bct,bcs->bts", q, k) / math.sqrt(c)
        y = torch.einsum("bts,bcs->bct", torch.softmax(weight, dim=-1), v)
        return x + self.proj(y).view(b, c, h, w)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(BASE, TIME), nn.SiLU(), nn.Linear(TIME, TIME))
        self.head = nn.Conv2d(2, BASE, 3, padding=1)
        self.down_block, self.down = ResBlock(BASE, BASE), nn.Conv2d(BASE, BASE, 3, 2, 1)
        self.mid_block, self.attn = ResBlock(BASE, 2 * BASE), Attention(2 * BASE)
        self.up = nn.Conv2d(2 * BASE, BASE, 3, padding=1)
        self.up_block = ResBlock(2 * BASE, BASE)
        self.norm = nn.GroupNorm(GROUPS, BASE)  # <- group_span
        self.tail = nn.Conv2d(BASE, 2, 3, padding=1)

    def forward(self, x, t):
        emb = self.time(timestep_embedding(t))  # <- sin_cos
        skip = self.down_block(self.head(x), emb)
        h = self.attn(self.mid_block(self.down(skip), emb))
        h = self.up(F.interpolate(h, scale_factor=2.0, mode="nearest"))
        h = self.up_block(torch.cat([h, skip], dim=1), emb)
        return self.tail(F.silu(self.norm(h)))  # <- group_span


torch.manual_seed(61)
model = UNet()
torch.save(model.state_dict(), sys.argv[1])
average = copy.deepcopy(model)
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3, betas=(0.9, 0.99), eps=1e-4)
betas = torch.linspace(1e-3, 0.06, STEPS)  # <- beta_schedule
alphas_bar = torch.cumprod(1 - betas, 0)  # <- beta_schedule
generator = torch.Generator().manual_seed(62)
losses = []
for _ in range(3):
    x0 = torch.randn((3, 2, 8, 8), generator=generator)
    noise = torch.randn(x0.shape, generator=generator)
    t = torch.randint(STEPS, (3,), generator=generator)
    a, s = (r.sqrt()[t].view(3, 1, 1, 1) for r in (alphas_bar, 1 - alphas_bar))  # <- beta_schedule
    loss = F.mse_loss(model(a * x0 + s * noise, t), a * noise - s * x0)  # <- beta_schedule
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for old, new in zip(average.parameters(), model.parameters()):
            old.lerp_(new, 0.2)  # <- ema_late
    losses.append(loss.item())

x = torch.randn((2, 2, 8, 8), generator=generator)
for t, before in ((90, 60), (60, 30), (30, -1)):
    ahead = alphas_bar[before] if before >= 0 else torch.tensor(1.0)  # <- ddim_previous
    now = alphas_bar[t]
    with torch.no_grad():
        v = average(x, torch.tensor([t, t]))
    x0, eps = now.sqrt() * x - (1 - now).sqrt() * v, now.sqrt() * v + (1 - now).sqrt() * x
    x = ahead.sqrt() * x0 + (1 - ahead).sqrt() * eps  # <- ddim_previous
    losses.append(x.square().mean().item())
