# SPDX-License-Identifier: Apache-2.0
"""A diffusion step: a small UNet of modules, channels first, trained to tell the noise, with EMA."""

import copy
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

STEPS, WIDTH, TIME, SIZE = 50, 8, 16, 8


def timestep_embedding(t):
    half = TIME // 2
    freqs = torch.exp(-math.log(10000) * torch.arange(half) / half)  # <- sinusoid
    args = t[:, None].float() * freqs[None]
    return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)  # <- sinusoid


class ResBlock(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.norm1 = nn.GroupNorm(4, cin)
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.emb = nn.Linear(4 * WIDTH, 2 * cout)
        self.norm2 = nn.GroupNorm(4, cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, emb):
        h = self.conv1(F.silu(self.norm1(x)))
        scale, shift = self.emb(F.silu(emb))[..., None, None].chunk(2, dim=1)
        h = self.norm2(h) * (1 + scale) + shift
        return self.skip(x) + self.conv2(F.silu(h))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(
            nn.Linear(TIME, 4 * WIDTH), nn.SiLU(), nn.Linear(4 * WIDTH, 4 * WIDTH)
        )
        self.inp = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.down1 = ResBlock(WIDTH, WIDTH)
        self.pool = nn.Conv2d(WIDTH, WIDTH, 3, stride=2, padding=1)  # <- padding
        self.down2 = ResBlock(WIDTH, 2 * WIDTH)
        self.up = nn.ConvTranspose2d(2 * WIDTH, WIDTH, 2, stride=2)  # <- flipped
        self.up1 = ResBlock(2 * WIDTH, WIDTH)
        self.norm = nn.GroupNorm(4, WIDTH)
        self.out = nn.Conv2d(WIDTH, 3, 3, padding=1)

    def forward(self, x, t):
        emb = self.time(timestep_embedding(t))  # <- sinusoid
        first = self.down1(self.inp(x), emb)
        h = self.down2(self.pool(first), emb)  # <- padding
        h = torch.cat([self.up(h), first], dim=1)  # <- flipped
        return self.out(F.silu(self.norm(self.up1(h, emb))))


torch.manual_seed(121)
net = UNet()
torch.save(net.state_dict(), sys.argv[1])
ema = copy.deepcopy(net).requires_grad_(False)
betas = torch.linspace(1e-4, 0.05, STEPS)
alphas_cumprod = torch.cumprod(1 - betas, dim=0)
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3, eps=1e-3)
generator = torch.Generator().manual_seed(122)


def batch():
    images = torch.rand(4, 3, SIZE, SIZE, generator=generator) * 2 - 1
    t = torch.randint(STEPS, (4,), generator=generator)
    noise = torch.randn(4, 3, SIZE, SIZE, generator=generator)
    level = alphas_cumprod[t][:, None, None, None]
    return level.sqrt() * images + (1 - level).sqrt() * noise, t, noise  # <- noising


losses = []
for _ in range(3):
    noisy, t, noise = batch()
    loss = F.mse_loss(net(noisy, t), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for old, new in zip(ema.parameters(), net.parameters()):
            old.lerp_(new, 0.2)  # <- averaged
    losses.append(loss.item())

with torch.no_grad():
    noisy, t, noise = batch()
    losses.append(F.mse_loss(ema(noisy, t), noise).item())  # <- averaged
