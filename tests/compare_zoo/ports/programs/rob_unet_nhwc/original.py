# SPDX-License-Identifier: Apache-2.0
"""DDPM training of a tiny self-conditioned UNet: cosine schedule, min-SNR weights, an EMA model gives the condition."""
import copy
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)

STEPS, BATCH, SIZE, WIDTH, T = 5, 4, 8, 16, 50


class TimeEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim))

    def forward(self, t):
        half = self.dim // 2
        freqs = torch.exp(-math.log(1000.0) * torch.arange(half) / (half - 1))  # <- freq_spacing
        angles = t[:, None].float() * freqs  # <- freq_spacing
        return self.mlp(torch.cat([angles.sin(), angles.cos()], dim=1))


class ResBlock(nn.Module):
    def __init__(self, n_in, n_out, t_dim):
        super().__init__()
        self.norm1 = nn.GroupNorm(4, n_in)  # <- group_layout
        self.conv1 = nn.Conv2d(n_in, n_out, 3, padding=1)
        self.emb = nn.Linear(t_dim, n_out)
        self.norm2 = nn.GroupNorm(4, n_out)  # <- group_layout
        self.conv2 = nn.Conv2d(n_out, n_out, 3, padding=1)
        self.skip = nn.Conv2d(n_in, n_out, 1) if n_in != n_out else nn.Identity()

    def forward(self, x, temb):
        h = self.conv1(F.silu(self.norm1(x)))  # <- group_layout
        h = h + self.emb(F.silu(temb))[:, :, None, None]
        h = self.conv2(F.silu(self.norm2(h)))  # <- group_layout
        return h + self.skip(x)


class UNet(nn.Module):
    def __init__(self, width=WIDTH):
        super().__init__()
        self.time = TimeEmbedding(width)
        self.stem = nn.Conv2d(2, width, 3, padding=1)
        self.enc = ResBlock(width, width, width)
        self.down = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.mid = ResBlock(width, 2 * width, width)
        self.up = nn.Conv2d(2 * width, width, 3, padding=1)
        self.dec = ResBlock(2 * width, width, width)
        self.out = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, x, condition, t):
        temb = self.time(t)
        h = self.stem(torch.cat([x, condition], dim=1))
        skip = self.enc(h, temb)
        h = self.mid(self.down(skip), temb)
        h = self.up(F.interpolate(h, scale_factor=2, mode="nearest"))
        h = self.dec(torch.cat([h, skip], dim=1), temb)
        return self.out(F.silu(h))


class EMA:
    def __init__(self, model, decay=0.95):
        self.model, self.decay, self.updates = copy.deepcopy(model).requires_grad_(False), decay, 0

    @torch.no_grad()
    def update(self, source):
        self.updates += 1
        d = min(self.decay, (1 + self.updates) / (4 + self.updates))  # <- ema_warmup
        for mine, theirs in zip(self.model.parameters(), source.parameters()):
            mine.lerp_(theirs, 1 - d)  # <- ema_warmup


def cosine_alphas(steps, s=0.008):
    at = torch.arange(steps + 1, dtype=torch.float64) / steps
    f = torch.cos((at + s) / (1 + s) * math.pi / 2) ** 2
    betas = (1 - f[1:] / f[:-1]).clamp(max=0.999)
    return torch.cumprod(1 - betas, dim=0).float()  # <- alpha_index


torch.manual_seed(23)
model = UNet()
torch.save(model.state_dict(), sys.argv[1])
ema = EMA(model)
alphas = cosine_alphas(T)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)

g = torch.Generator().manual_seed(9)
losses = []
for step in range(STEPS):
    images = torch.rand(BATCH, 1, SIZE, SIZE, generator=g) * 2 - 1
    t = torch.randint(0, T - 1, (BATCH,), generator=g)
    noise = torch.randn(BATCH, 1, SIZE, SIZE, generator=g)
    a = alphas[t].view(-1, 1, 1, 1)  # <- alpha_index
    noisy = a.sqrt() * images + (1 - a).sqrt() * noise
    with torch.no_grad():
        guess = ema.model(noisy, torch.zeros_like(noisy), t)
        clean = ((noisy - (1 - a).sqrt() * guess) / a.sqrt()).clamp(-1, 1)
    predicted = model(noisy, clean, t)
    snr = (a / (1 - a)).flatten()
    weight = snr.clamp(max=5.0) / snr  # <- snr_weight
    loss = (weight * (predicted - noise).pow(2).mean(dim=(1, 2, 3))).mean()  # <- snr_weight
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ema.update(model)
    losses.append(loss.item())
print(losses)
