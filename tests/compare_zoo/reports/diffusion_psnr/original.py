# SPDX-License-Identifier: Apache-2.0
"""Noise-predicting diffusion model; mean squared error of the noise at several time steps."""
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(33)


def time_embedding(t, dim=8):
    freq = torch.exp(-math.log(1000) * torch.arange(dim // 2) / (dim // 2))
    angle = t[:, None] * freq
    return torch.cat([angle.sin(), angle.cos()], 1)


class NoiseNet(nn.Module):
    def __init__(self, ch=8):
        super().__init__()
        self.time = nn.Linear(8, 2 * ch)
        self.inp = nn.Conv2d(1, ch, 3, padding=1)
        self.norm = nn.GroupNorm(4, ch)
        self.mid = nn.Conv2d(ch, ch, 3, padding=1, groups=2)
        self.out = nn.Conv2d(ch, 1, 3, padding=1)

    def forward(self, x, t):
        scale, shift = self.time(time_embedding(t))[:, :, None, None].chunk(2, 1)
        h = self.inp(x)
        h = h + self.mid(F.silu(self.norm(h) * (1 + scale) + shift))
        return self.out(F.silu(h))


net = NoiseNet()
nn.init.normal_(net.norm.weight, 1.0, 0.3)
nn.init.normal_(net.norm.bias, 0.0, 0.3)
nn.init.normal_(net.mid.weight, std=0.3)
nn.init.normal_(net.out.weight, std=0.2)
torch.save(net.state_dict(), sys.argv[1])
net.eval()

alpha_bar = torch.linspace(0.999, 0.9, 50).cumprod(0)
g = torch.Generator().manual_seed(123)
losses = []
with torch.no_grad():
    for step in (5, 15, 25, 40):
        clean = torch.rand(6, 1, 8, 8, generator=g) * 2 - 1
        noise = torch.randn(6, 1, 8, 8, generator=g)
        a = alpha_bar[step]
        noisy = a.sqrt() * clean + (1 - a).sqrt() * noise
        eps = net(noisy, torch.full((6,), float(step)))
        losses.append(F.mse_loss(eps, noise).item())
        print(f"t={step}: noise mse {losses[-1]:.4f}")
print(losses)
