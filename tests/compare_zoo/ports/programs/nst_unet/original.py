# SPDX-License-Identifier: Apache-2.0
"""A small DDPM: UNet with timestep embeddings and group norm, trained to predict the noise."""
import math
import sys

import torch
from torch import nn
import torch.nn.functional as F


def timestep_embedding(timesteps, dim, max_period=10000):
    half = dim // 2
    freqs = torch.exp(-math.log(max_period) * torch.arange(half).float() / half)
    args = timesteps[:, None].float() * freqs[None]
    return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)  # <- time_order


class ResBlock(nn.Module):
    def __init__(self, ch_in, ch_out, emb_dim):
        super().__init__()
        self.in_norm = nn.GroupNorm(4, ch_in)  # <- group_axis
        self.in_conv = nn.Conv2d(ch_in, ch_out, 3, padding=1)
        self.emb_proj = nn.Linear(emb_dim, 2 * ch_out)
        self.out_norm = nn.GroupNorm(4, ch_out)  # <- group_axis
        self.out_conv = nn.Conv2d(ch_out, ch_out, 3, padding=1)
        self.skip = nn.Conv2d(ch_in, ch_out, 1) if ch_in != ch_out else nn.Identity()

    def forward(self, x, emb):
        h = self.in_conv(F.silu(self.in_norm(x)))  # <- group_axis
        scale, shift = self.emb_proj(F.silu(emb))[..., None, None].chunk(2, dim=1)
        h = self.out_norm(h) * (1 + scale) + shift  # <- group_axis film_one
        return self.skip(x) + self.out_conv(F.silu(h))


class UNet(nn.Module):
    def __init__(self, ch=8, emb_dim=16):
        super().__init__()
        self.ch = ch
        self.time_mlp = nn.Sequential(nn.Linear(ch, emb_dim), nn.SiLU(),
                                      nn.Linear(emb_dim, emb_dim))
        self.stem = nn.Conv2d(2, ch, 3, padding=1)
        self.enc = ResBlock(ch, ch, emb_dim)
        self.down = nn.Conv2d(ch, 2 * ch, 3, stride=2, padding=1)
        self.mid = ResBlock(2 * ch, 2 * ch, emb_dim)
        self.up = nn.Conv2d(2 * ch, ch, 3, padding=1)
        self.dec = ResBlock(2 * ch, ch, emb_dim)
        self.head_norm = nn.GroupNorm(4, ch)
        self.head = nn.Conv2d(ch, 2, 3, padding=1)

    def forward(self, x, t):
        emb = self.time_mlp(timestep_embedding(t, self.ch))
        a = self.enc(self.stem(x), emb)
        b = self.mid(self.down(a), emb)
        b = self.up(F.interpolate(b, scale_factor=2, mode="nearest"))
        c = self.dec(torch.cat([b, a], dim=1), emb)
        return self.head(F.silu(self.head_norm(c)))


class GaussianDiffusion:
    def __init__(self, steps=50):
        self.steps = steps
        betas = torch.linspace(1e-3 ** 0.5, 0.08 ** 0.5, steps) ** 2  # <- beta_table
        self.alphas_cumprod = torch.cumprod(1.0 - betas, dim=0)  # <- beta_table

    def q_sample(self, x0, t, noise):
        a = self.alphas_cumprod[t].view(-1, 1, 1, 1)
        return a.sqrt() * x0 + (1 - a).sqrt() * noise  # <- beta_table


torch.manual_seed(0)
model = UNet()
torch.save(model.state_dict(), sys.argv[1])
diffusion = GaussianDiffusion()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01, eps=1e-4)
g = torch.Generator().manual_seed(77)
losses = []
for step in range(4):
    x0 = torch.randn(5, 2, 8, 8, generator=g)
    t = torch.randint(0, diffusion.steps, (5,), generator=g)
    noise = torch.randn(5, 2, 8, 8, generator=g)
    pred = model(diffusion.q_sample(x0, t, noise), t)
    loss = F.mse_loss(pred, noise)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # <- clip_norm
    optimizer.step()  # <- clip_norm
    losses.append(loss.item())
print(losses)
