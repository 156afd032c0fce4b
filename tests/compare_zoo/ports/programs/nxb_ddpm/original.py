# SPDX-License-Identifier: Apache-2.0
"""DDPM training step on small images: linear betas, epsilon prediction, class conditioning."""
import math
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def timestep_embedding(timesteps, dim, max_period=10000):
    half = dim // 2
    exponent = torch.arange(half, dtype=torch.float32) / half  # <- freq_denominator
    freqs = torch.exp(-math.log(max_period) * exponent)  # <- freq_denominator
    args = timesteps[:, None].float() * freqs[None]
    return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)


class ResBlock(nn.Module):
    def __init__(self, cin, cout, emb):
        super().__init__()
        self.in_layers = nn.Sequential(
            nn.GroupNorm(2, cin), nn.SiLU(), nn.Conv2d(cin, cout, 3, padding=1)
        )
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(emb, 2 * cout))
        self.out_norm = nn.GroupNorm(2, cout)
        self.out_conv = nn.Conv2d(cout, cout, 3, padding=1)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, emb):
        h = self.in_layers(x)
        scale, shift = self.emb_layers(emb)[:, :, None, None].chunk(2, dim=1)
        h = self.out_norm(h) * (1 + scale) + shift  # <- film_unit
        return self.skip(x) + self.out_conv(F.silu(h))


class TinyUNet(nn.Module):
    def __init__(self, channels=8, num_classes=3, emb=16):
        super().__init__()
        self.channels = channels
        self.time_embed = nn.Sequential(nn.Linear(channels, emb), nn.SiLU(), nn.Linear(emb, emb))
        self.label_emb = nn.Embedding(num_classes + 1, emb)
        self.stem = nn.Conv2d(2, channels, 3, padding=1)
        self.down = ResBlock(channels, channels, emb)
        self.mid = ResBlock(channels, channels, emb)
        self.up = ResBlock(2 * channels, channels, emb)
        self.head = nn.Conv2d(channels, 2, 3, padding=1)

    def forward(self, x, t, y):
        emb = self.time_embed(timestep_embedding(t, self.channels))  # <- freq_denominator
        emb = emb + self.label_emb(y)  # <- null_slot
        h0 = self.down(self.stem(x), emb)
        h = self.mid(F.avg_pool2d(h0, 2), emb)
        h = F.interpolate(h, scale_factor=2, mode="nearest")
        h = self.up(torch.cat([h, h0], dim=1), emb)
        return self.head(F.silu(h))


class GaussianDiffusion:
    def __init__(self, steps=100, start=1e-3, end=0.05):
        betas = np.linspace(start, end, steps, dtype=np.float64)  # <- beta_table
        alphas_cumprod = np.cumprod(1.0 - betas, axis=0)  # <- beta_table
        self.sqrt_ac = torch.from_numpy(np.sqrt(alphas_cumprod)).float()  # <- beta_table
        self.sqrt_1mac = torch.from_numpy(np.sqrt(1.0 - alphas_cumprod)).float()  # <- beta_table

    def q_sample(self, x0, t, noise):
        a, b = self.sqrt_ac[t][:, None, None, None], self.sqrt_1mac[t][:, None, None, None]
        return a * x0 + b * noise  # <- beta_table

    def training_losses(self, model, x0, t, y, noise):
        return F.mse_loss(model(self.q_sample(x0, t, noise), t, y), noise)


NUM_CLASSES, BATCH = 3, 5
torch.manual_seed(0)
model = TinyUNet(num_classes=NUM_CLASSES)
torch.save(model.state_dict(), sys.argv[1])
diffusion = GaussianDiffusion()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1)  # <- coupled_decay

g = torch.Generator().manual_seed(77)
losses = []
for it in range(4):
    x0 = torch.rand(BATCH, 2, 8, 8, generator=g) * 2 - 1
    y = torch.randint(0, NUM_CLASSES, (BATCH,), generator=g)
    t = torch.randint(0, 100, (BATCH,), generator=g)
    noise = torch.randn(BATCH, 2, 8, 8, generator=g)
    drop = (torch.arange(BATCH) + it) % 4 == 0
    y = torch.where(drop, torch.full_like(y, NUM_CLASSES), y)  # <- null_slot
    loss = diffusion.training_losses(model, x0, t, y, noise)
    opt.zero_grad()
    loss.backward()
    opt.step()  # <- coupled_decay
    losses.append(loss.item())
print(losses)
