# SPDX-License-Identifier: Apache-2.0
"""Denoising diffusion on toy images: epsilon prediction, min-SNR weights and an EMA teacher term."""
import copy
import math
import sys

import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)

TIMESTEPS, CH, GROUPS, EMB = 100, 16, 4, 24


class SinusoidalPosEmb(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, t):
        half = self.dim // 2
        scale = math.log(10000) / (half - 1)  # <- frequency_shift
        freqs = torch.exp(torch.arange(half) * -scale)  # <- frequency_shift
        args = t[:, None].float() * freqs[None, :]  # <- frequency_shift
        return torch.cat((args.sin(), args.cos()), dim=-1)


class ResnetBlock(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.norm1 = nn.GroupNorm(GROUPS, cin)  # <- groups_interleaved
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.time_proj = nn.Linear(EMB, cout)
        self.norm2 = nn.GroupNorm(GROUPS, cout)  # <- groups_interleaved
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, emb):
        h = self.conv1(F.silu(self.norm1(x)))  # <- groups_interleaved
        h = h + self.time_proj(F.silu(emb))[:, :, None, None]
        h = self.conv2(F.silu(self.norm2(h)))  # <- groups_interleaved
        return self.skip(x) + h


class EpsModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.time_emb = SinusoidalPosEmb(EMB)
        self.time_mlp = nn.Sequential(nn.Linear(EMB, EMB), nn.SiLU(), nn.Linear(EMB, EMB))
        self.conv_in = nn.Conv2d(1, CH, 3, padding=1)
        self.down = ResnetBlock(CH, 2 * CH)
        self.up = ResnetBlock(3 * CH, CH)
        self.norm_out = nn.GroupNorm(GROUPS, CH)  # <- groups_interleaved
        self.conv_out = nn.Conv2d(CH, 1, 3, padding=1)

    def forward(self, x, t):
        emb = self.time_mlp(self.time_emb(t))  # <- frequency_shift
        h0 = self.conv_in(x)
        h = self.down(F.avg_pool2d(h0, 2), emb)
        h = F.interpolate(h, scale_factor=2, mode="nearest")
        h = self.up(torch.cat([h, h0], dim=1), emb)
        return self.conv_out(F.silu(self.norm_out(h)))  # <- groups_interleaved


class EMA:
    def __init__(self, model, max_decay=0.999):
        self.shadow = copy.deepcopy(model).requires_grad_(False)
        self.max_decay, self.updates = max_decay, 0

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        decay = min(self.max_decay, (1 + self.updates) / (10 + self.updates))  # <- ema_without_warmup
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.mul_(decay).add_(p, alpha=1 - decay)  # <- ema_without_warmup


class Diffusion:
    def __init__(self):
        betas = torch.linspace(1e-4, 0.02, TIMESTEPS, dtype=torch.float64)
        self.alphas_cumprod = torch.cumprod(1 - betas, dim=0).float()

    def q_sample(self, x0, t, noise):
        a = self.alphas_cumprod[t].view(-1, 1, 1, 1)  # <- alpha_one_step_early
        return a.sqrt() * x0 + (1 - a).sqrt() * noise  # <- alpha_one_step_early

    def loss_weight(self, t, gamma=5.0):
        a = self.alphas_cumprod[t]  # <- alpha_one_step_early
        snr = a / (1 - a)
        return snr.clamp(max=gamma) / snr  # <- snr_weight_of_x0


torch.manual_seed(9)
model, diffusion = EpsModel(), Diffusion()
torch.save(model.state_dict(), sys.argv[1])
ema = EMA(model)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
gen = torch.Generator().manual_seed(31)

losses = []
for step in range(5):
    x0 = torch.rand(6, 1, 8, 8, generator=gen).round() * 2 - 1
    t = torch.randint(0, TIMESTEPS, (6,), generator=gen)
    noise = torch.randn(x0.shape, generator=gen)
    x_t = diffusion.q_sample(x0, t, noise)  # <- alpha_one_step_early
    pred = model(x_t, t)
    with torch.no_grad():
        teacher = ema.shadow(x_t, t)  # <- ema_without_warmup
    per_sample = F.mse_loss(pred, noise, reduction="none").mean(dim=(1, 2, 3))
    loss = (diffusion.loss_weight(t) * per_sample).mean()  # <- snr_weight_of_x0
    loss = loss + 0.5 * F.mse_loss(pred, teacher)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ema.update(model)  # <- ema_without_warmup
    losses.append(loss.item())
print(losses)
