# SPDX-License-Identifier: Apache-2.0
"""Class-conditional DDIM sampling (eta = 0) of 8x8 sprites with a v-predicting U-Net and
classifier-free guidance; the starting noise comes from a fixed generator."""
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

T, STEPS, CLASSES, CH, SCALE = 200, 5, 6, 16, 2.5


def timestep_embedding(t, dim, max_period=10000):
    half = dim // 2
    freqs = torch.exp(-math.log(max_period) * torch.arange(half) / half)  # <- timeembed
    args = t[:, None].float() * freqs[None]
    return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)  # <- timeembed


class ResBlock(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.norm1 = nn.GroupNorm(4, cin)
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.emb = nn.Linear(32, 2 * cout)
        self.norm2 = nn.GroupNorm(4, cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.skip = nn.Conv2d(cin, cout, 1)

    def forward(self, x, emb):
        h = self.conv1(F.silu(self.norm1(x)))
        scale, shift = self.emb(F.silu(emb))[:, :, None, None].chunk(2, dim=1)
        h = self.norm2(h) * (1 + scale) + shift
        return self.skip(x) + self.conv2(F.silu(h))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.time_mlp = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 32))
        self.label_emb = nn.Embedding(CLASSES + 1, 32)
        self.inp = nn.Conv2d(3, CH, 3, padding=1)
        self.down = ResBlock(CH, CH)
        self.pool = nn.Conv2d(CH, CH, 3, stride=2, padding=1)
        self.mid = ResBlock(CH, CH)
        self.up = ResBlock(2 * CH, CH)
        self.out = nn.Conv2d(CH, 3, 3, padding=1)

    def forward(self, x, t, y):
        emb = self.time_mlp(timestep_embedding(t, 16)) + self.label_emb(y)
        a = self.down(self.inp(x), emb)
        b = self.mid(self.pool(a), emb)
        b = F.interpolate(b, scale_factor=2, mode="nearest")
        return self.out(self.up(torch.cat([b, a], dim=1), emb))


torch.manual_seed(0)
model = UNet().eval()
with torch.no_grad():
    for name, p in model.named_parameters():
        if "norm" in name:
            p.add_(0.3 * torch.randn_like(p))
        elif p.dim() > 1:
            p.normal_(0, 1.0 / p[0].numel() ** 0.5)
    model.label_emb.weight.normal_()
torch.save(model.state_dict(), sys.argv[1])

betas = torch.linspace(0.001 ** 0.5, 0.05 ** 0.5, T, dtype=torch.float64) ** 2  # <- betas
alphas_bar = torch.cumprod(1 - betas, dim=0)  # <- betas
timesteps = list(range(0, T, T // STEPS))[::-1]  # <- spacing
gen = torch.Generator().manual_seed(9)
x = torch.randn(4, 3, 8, 8, generator=gen)
labels = torch.randint(0, CLASSES, (4,), generator=gen)

losses = []
with torch.no_grad():
    for i, t in enumerate(timesteps):
        a = alphas_bar[t].float()
        last = i + 1 == len(timesteps)
        a_prev = torch.tensor(1.0) if last else alphas_bar[timesteps[i + 1]].float()  # <- spacing
        tt = torch.full((4,), t)
        cond = model(x, tt, labels)
        uncond = model(x, tt, torch.full_like(labels, CLASSES))  # <- guidance
        v = uncond + SCALE * (cond - uncond)  # <- guidance
        x0 = a.sqrt() * x - (1 - a).sqrt() * v
        x0 = x0.clamp(-1.5, 1.5)  # <- clip
        eps = (x - a.sqrt() * x0) / (1 - a).sqrt()
        x = a_prev.sqrt() * x0 + (1 - a_prev).sqrt() * eps
        losses.append((x.square().mean() + x.mean()).item())
print(losses)
