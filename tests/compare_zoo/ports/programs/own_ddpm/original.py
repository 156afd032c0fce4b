# SPDX-License-Identifier: Apache-2.0
"""DDPM with a small UNet: cosine schedule, conditions dropped for guidance, loss weighted by the
signal-to-noise ratio; at the end one guided DDIM step.
"""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

STEPS, CHANNELS, CLASSES, BATCH, SIZE = 20, 8, 3, 4, 8


class ResBlock(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.norm1 = nn.GroupNorm(4, n_in)  # <- grouped
        self.conv1 = nn.Conv2d(n_in, n_out, 3, padding=1)
        self.emb = nn.Linear(16, 2 * n_out)
        self.norm2 = nn.GroupNorm(4, n_out)  # <- grouped
        self.conv2 = nn.Conv2d(n_out, n_out, 3, padding=1)
        self.skip = nn.Conv2d(n_in, n_out, 1) if n_in != n_out else nn.Identity()

    def forward(self, x, emb):
        h = self.conv1(F.silu(self.norm1(x)))  # <- grouped
        scale, shift = self.emb(F.silu(emb))[:, :, None, None].chunk(2, dim=1)  # <- modulated
        h = self.norm2(h) * (1 + scale) + shift  # <- grouped modulated
        return self.skip(x) + self.conv2(F.silu(h))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 16), nn.SiLU(), nn.Linear(16, 16))
        self.label = nn.Embedding(CLASSES + 1, 16)
        self.conv_in = nn.Conv2d(1, CHANNELS, 3, padding=1)
        self.down = ResBlock(CHANNELS, CHANNELS)
        self.pool = nn.Conv2d(CHANNELS, 2 * CHANNELS, 3, stride=2, padding=1)
        self.mid = ResBlock(2 * CHANNELS, 2 * CHANNELS)
        self.attn_norm = nn.GroupNorm(4, 2 * CHANNELS)  # <- grouped
        self.attn = nn.MultiheadAttention(2 * CHANNELS, 2, batch_first=True)
        self.up = ResBlock(3 * CHANNELS, CHANNELS)
        self.conv_out = nn.Conv2d(CHANNELS, 1, 3, padding=1)

    def forward(self, x, t, label):
        freqs = torch.exp(-math.log(10000) * torch.arange(8) / 8)
        args = t[:, None].float() * freqs
        emb = self.time(torch.cat((args.cos(), args.sin()), dim=1))  # <- sines
        emb = emb + self.label(label)
        skip = self.down(self.conv_in(x), emb)
        h = self.mid(self.pool(skip), emb)
        tokens = self.attn_norm(h).flatten(2).transpose(1, 2)
        tokens = self.attn(tokens, tokens, tokens, need_weights=False)[0]
        h = h + tokens.transpose(1, 2).view_as(h)
        h = F.interpolate(h, scale_factor=2, mode="nearest")
        return self.conv_out(self.up(torch.cat((h, skip), dim=1), emb))


def cosine_schedule():
    x = torch.arange(STEPS + 1, dtype=torch.float64) / STEPS
    bar = torch.cos((x + 0.008) / 1.008 * math.pi / 2) ** 2
    betas = (1 - bar[1:] / bar[:-1]).clamp(max=0.999)
    return torch.cumprod(1 - betas, dim=0).float()


torch.manual_seed(111)
model = UNet()
torch.save(model.state_dict(), sys.argv[1])
alphas_bar = cosine_schedule()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, eps=1e-4)
generator = torch.Generator().manual_seed(112)
losses = []
for _ in range(3):
    x0 = torch.randn(BATCH, 1, SIZE, SIZE, generator=generator).cumsum(3) * 0.5
    label = torch.randint(CLASSES, (BATCH,), generator=generator)
    label[torch.rand(BATCH, generator=generator) < 0.3] = CLASSES
    t = torch.randint(STEPS, (BATCH,), generator=generator)
    noise = torch.randn(x0.shape, generator=generator)
    a = alphas_bar[t][:, None, None, None]
    predicted = model(a.sqrt() * x0 + (1 - a).sqrt() * noise, t, label)
    snr = alphas_bar[t] / (1 - alphas_bar[t])
    weight = snr.clamp(max=2.0) / snr  # <- weighted
    loss = (weight * (predicted - noise).square().mean((1, 2, 3))).mean()  # <- weighted
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

with torch.no_grad():
    x = torch.randn(BATCH, 1, SIZE, SIZE, generator=generator)
    t, label = torch.full((BATCH,), 15), torch.tensor([0, 1, 2, 1])
    conditional, free = model(x, t, label), model(x, t, torch.full_like(label, CLASSES))
    eps = free + 3.0 * (conditional - free)  # <- guided
    x0 = (x - (1 - alphas_bar[15]).sqrt() * eps) / alphas_bar[15].sqrt()
    x = alphas_bar[14].sqrt() * x0 + (1 - alphas_bar[14]).sqrt() * eps
    losses.append(x.square().mean().item())
