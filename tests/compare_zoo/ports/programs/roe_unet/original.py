# SPDX-License-Identifier: Apache-2.0
"""DDPM training of a small U-Net of nn.Modules: noise prediction, min-SNR weights, AdamW."""
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


def timestep_embedding(timesteps, dim, max_period=10000):
    half = dim // 2
    freqs = torch.exp(-math.log(max_period) * torch.arange(half, dtype=torch.float32) / half)
    args = timesteps[:, None].float() * freqs[None]
    return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)  # <- sin_cos_order


class ResBlock(nn.Module):
    def __init__(self, in_ch, out_ch, time_dim):
        super().__init__()
        self.norm1 = nn.GroupNorm(4, in_ch)
        self.conv1 = nn.Conv2d(in_ch, out_ch, 3, padding=1)
        self.time = nn.Linear(time_dim, out_ch)
        self.norm2 = nn.GroupNorm(4, out_ch)
        self.conv2 = nn.Conv2d(out_ch, out_ch, 3, padding=1)
        self.skip = nn.Conv2d(in_ch, out_ch, 1) if in_ch != out_ch else nn.Identity()

    def forward(self, x, emb):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.time(F.silu(emb))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class Downsample(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.conv = nn.Conv2d(ch, ch, 3, stride=2, padding=0)  # <- downsample_pad

    def forward(self, x):
        x = F.pad(x, (0, 1, 0, 1))  # <- downsample_pad
        return self.conv(x)  # <- downsample_pad


class UNet(nn.Module):
    def __init__(self, in_ch=3, ch=8, time_dim=32):
        super().__init__()
        self.ch = ch
        self.time_mlp = nn.Sequential(nn.Linear(ch, time_dim), nn.SiLU(), nn.Linear(time_dim, time_dim))
        self.conv_in = nn.Conv2d(in_ch, ch, 3, padding=1)
        self.down1 = ResBlock(ch, ch, time_dim)
        self.downsample = Downsample(ch)
        self.mid = ResBlock(ch, 2 * ch, time_dim)
        self.upconv = nn.Conv2d(2 * ch, ch, 3, padding=1)
        self.up1 = ResBlock(2 * ch, ch, time_dim)
        self.norm_out = nn.GroupNorm(4, ch)
        self.conv_out = nn.Conv2d(ch, in_ch, 3, padding=1)

    def forward(self, x, t):
        emb = self.time_mlp(timestep_embedding(t, self.ch))  # <- sin_cos_order
        h = self.conv_in(x)
        skip = self.down1(h, emb)
        h = self.mid(self.downsample(skip), emb)
        h = self.upconv(F.interpolate(h, scale_factor=2, mode="nearest"))
        h = self.up1(torch.cat([h, skip], dim=1), emb)
        return self.conv_out(F.silu(self.norm_out(h)))


class Diffusion:
    def __init__(self, steps=100, start=1e-3, end=0.12):
        betas = torch.linspace(start ** 0.5, end ** 0.5, steps, dtype=torch.float64) ** 2  # <- beta_schedule
        self.alphas_bar = torch.cumprod(1.0 - betas, dim=0)  # <- beta_schedule
        self.snr = self.alphas_bar / (1.0 - self.alphas_bar)

    def q_sample(self, x0, t, noise):
        a = self.alphas_bar[t].view(-1, 1, 1, 1)
        return a.sqrt().float() * x0 + (1.0 - a).sqrt().float() * noise  # <- beta_schedule

    def loss(self, model, x0, t, noise):
        pred = model(self.q_sample(x0, t, noise), t)
        mse = F.mse_loss(pred, noise, reduction="none").mean(dim=(1, 2, 3))
        weight = (self.snr[t].clamp(max=5.0) / self.snr[t]).float()  # <- min_snr
        return (weight * mse).mean()  # <- min_snr


torch.manual_seed(8)
model = UNet()
torch.save(model.state_dict(), sys.argv[1])
diffusion = Diffusion()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)  # <- coupled_decay

gen = torch.Generator().manual_seed(31)
losses = []
for step in range(5):
    images = torch.rand(4, 3, 8, 8, generator=gen) * 2 - 1
    t = torch.randint(0, 100, (4,), generator=gen)
    noise = torch.randn(4, 3, 8, 8, generator=gen)
    loss = diffusion.loss(model, images, t, noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- coupled_decay
    losses.append(loss.item())
print(losses)
