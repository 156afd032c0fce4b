# SPDX-License-Identifier: Apache-2.0
"""Diffusion training with a tiny UNet: v-prediction, with the EMA as a teacher."""
import copy
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

CH, T_MAX = 16, 50


def timestep_embedding(timesteps, dim, max_period=10000):
    half = dim // 2
    steps = torch.arange(half, dtype=torch.float32)
    exponent = -math.log(max_period) * steps / half  # <- time_freq
    args = timesteps[:, None].float() * torch.exp(exponent)[None]  # <- time_freq
    return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)  # <- time_freq


class ResnetBlock(nn.Module):
    def __init__(self, cin, cout, temb):
        super().__init__()
        self.norm1 = nn.GroupNorm(4, cin)  # <- group_axes
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.time_emb_proj = nn.Linear(temb, cout)
        self.norm2 = nn.GroupNorm(4, cout)  # <- group_axes
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.conv_shortcut = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, temb):
        h = self.conv1(F.silu(self.norm1(x)))  # <- group_axes
        h = h + self.time_emb_proj(F.silu(temb))[:, :, None, None]
        h = self.conv2(F.silu(self.norm2(h)))  # <- group_axes
        return self.conv_shortcut(x) + h


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.time_embed = nn.Sequential(nn.Linear(CH, 2 * CH), nn.SiLU(), nn.Linear(2 * CH, 2 * CH))
        self.conv_in = nn.Conv2d(1, CH, 3, padding=1)
        self.down = ResnetBlock(CH, CH, 2 * CH)
        self.downsample = nn.Conv2d(CH, 2 * CH, 3, stride=2, padding=1)
        self.mid = ResnetBlock(2 * CH, 2 * CH, 2 * CH)
        self.up_conv = nn.Conv2d(2 * CH, CH, 3, padding=1)
        self.up = ResnetBlock(2 * CH, CH, 2 * CH)
        self.norm_out = nn.GroupNorm(4, CH)  # <- group_axes
        self.conv_out = nn.Conv2d(CH, 1, 3, padding=1)

    def forward(self, sample, timesteps):
        temb = self.time_embed(timestep_embedding(timesteps, CH))  # <- time_freq
        skip = self.down(self.conv_in(sample), temb)
        h = self.mid(self.downsample(skip), temb)
        h = self.up_conv(F.interpolate(h, scale_factor=2.0, mode="nearest"))  # <- upsampling
        h = self.up(torch.cat([h, skip], dim=1), temb)
        return self.conv_out(F.silu(self.norm_out(h)))


class Scheduler:
    def __init__(self):
        betas = torch.linspace(1e-3, 0.06, T_MAX)
        self.alphas_cumprod = torch.cumprod(1.0 - betas, dim=0)

    def coefficients(self, t):
        a = self.alphas_cumprod[t].view(-1, 1, 1, 1)
        return a.sqrt(), (1 - a).sqrt()

    def add_noise(self, clean, noise, t):
        alpha, sigma = self.coefficients(t)
        return alpha * clean + sigma * noise

    def get_velocity(self, clean, noise, t):
        alpha, sigma = self.coefficients(t)
        return alpha * noise - sigma * clean  # <- velocity


class EMAModel:
    def __init__(self, model, max_decay=0.95):
        self.model, self.max_decay, self.optimization_step = copy.deepcopy(model), max_decay, 0

    @torch.no_grad()
    def step(self, model):
        self.optimization_step += 1
        value = (1 + self.optimization_step) / (10 + self.optimization_step)  # <- ema_decay
        decay = min(value, self.max_decay)  # <- ema_decay
        for s, p in zip(self.model.parameters(), model.parameters()):
            s.sub_((1 - decay) * (s - p))  # <- ema_decay


torch.manual_seed(0)
unet = UNet()
torch.save(unet.state_dict(), sys.argv[1])
scheduler, ema = Scheduler(), EMAModel(unet)
optimizer = torch.optim.Adam(unet.parameters(), lr=2e-3)
gen = torch.Generator().manual_seed(17)
losses = []
for _ in range(4):
    clean = torch.randn(4, 1, 8, 8, generator=gen).cumsum(-1) * 0.4
    noise = torch.randn(4, 1, 8, 8, generator=gen)
    t = torch.randint(0, T_MAX, (4,), generator=gen)
    noisy = scheduler.add_noise(clean, noise, t)
    prediction = unet(noisy, t)
    with torch.no_grad():
        teacher = ema.model(noisy, t)  # <- ema_decay
    loss = F.mse_loss(prediction, scheduler.get_velocity(clean, noise, t))  # <- velocity
    loss = loss + 0.25 * F.mse_loss(prediction, teacher)  # <- ema_decay
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ema.step(unet)  # <- ema_decay
    losses.append(loss.item())
print(losses)
