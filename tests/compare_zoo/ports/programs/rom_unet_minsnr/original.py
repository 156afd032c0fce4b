# SPDX-License-Identifier: Apache-2.0
"""Small denoising UNet: epsilon prediction, cosine noise schedule, min-SNR loss weights, Adam."""
import math
import sys

import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)

T, CH, TEMB, STEPS, BATCH, GAMMA = 50, 8, 16, 5, 6, 5.0


class SinusoidalPosEmb(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, t):
        half = self.dim // 2
        freqs = torch.exp(torch.arange(half) * -(math.log(10000) / (half - 1)))
        args = t[:, None].float() * freqs[None, :]
        return torch.cat((args.sin(), args.cos()), dim=-1)  # <- cos_first


class ResnetBlock(nn.Module):
    def __init__(self, cin, cout, groups=4):
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, cin)  # <- unbiased_var
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.time = nn.Linear(TEMB, cout)
        self.norm2 = nn.GroupNorm(groups, cout)  # <- unbiased_var
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, temb):
        h = self.norm1(x)  # <- unbiased_var
        h = self.conv1(F.silu(h))
        h = h + self.time(F.silu(temb))[:, :, None, None]
        h = self.norm2(h)  # <- unbiased_var
        return self.skip(x) + self.conv2(F.silu(h))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.time_mlp = nn.Sequential(SinusoidalPosEmb(TEMB), nn.Linear(TEMB, TEMB), nn.SiLU(), nn.Linear(TEMB, TEMB))
        self.stem = nn.Conv2d(1, CH, 3, padding=1)
        self.down = ResnetBlock(CH, CH)
        self.pool = nn.Conv2d(CH, 2 * CH, 3, stride=2, padding=1)
        self.mid = ResnetBlock(2 * CH, 2 * CH)
        self.up = nn.ConvTranspose2d(2 * CH, CH, 2, stride=2)
        self.dec = ResnetBlock(2 * CH, CH)
        self.out = nn.Conv2d(CH, 1, 1)

    def forward(self, x, t):
        temb = self.time_mlp(t)  # <- cos_first
        skip = self.down(self.stem(x), temb)
        h = self.mid(self.pool(skip), temb)
        h = torch.cat([self.up(h), skip], dim=1)  # <- skip_order
        h = self.dec(h, temb)
        return self.out(h)


def cosine_alphas_cumprod(timesteps, s=0.008):
    x = torch.linspace(0, timesteps, timesteps + 1, dtype=torch.float64)
    abar = torch.cos((x / timesteps + s) / (1 + s) * math.pi / 2) ** 2
    abar = abar / abar[0]
    betas = torch.clamp(1 - abar[1:] / abar[:-1], 0, 0.999)
    return torch.cumprod(1 - betas, dim=0).float()


class Diffusion(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.register_buffer("alphas_cumprod", cosine_alphas_cumprod(T), persistent=False)

    def q_sample(self, x0, t, noise):
        a = self.alphas_cumprod[t][:, None, None, None]
        return a.sqrt() * x0 + (1 - a).sqrt() * noise

    def forward(self, x0, t, noise):
        pred = self.net(self.q_sample(x0, t, noise), t)
        loss = F.mse_loss(pred, noise, reduction="none").mean(dim=(1, 2, 3))
        snr = self.alphas_cumprod[t] / (1 - self.alphas_cumprod[t])
        weight = snr.clamp(max=GAMMA) / snr  # <- snr_for_v
        return (loss * weight).mean()  # <- snr_for_v


torch.manual_seed(3)
diffusion = Diffusion(UNet())
torch.save(diffusion.net.state_dict(), sys.argv[1])
g = torch.Generator().manual_seed(17)
x0 = torch.tanh(torch.randn(STEPS, BATCH, 1, 8, 8, generator=g))
ts = torch.randint(0, T, (STEPS, BATCH), generator=g)
noises = torch.randn(STEPS, BATCH, 1, 8, 8, generator=g)

optimizer = torch.optim.Adam(diffusion.parameters(), lr=2e-3, betas=(0.9, 0.99), eps=1e-6)  # <- bias_correction

losses = []
for i in range(STEPS):
    loss = diffusion(x0[i], ts[i], noises[i])  # <- snr_for_v
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(diffusion.parameters(), 1.0)
    optimizer.step()  # <- bias_correction
    losses.append(loss.item())
print(losses)
