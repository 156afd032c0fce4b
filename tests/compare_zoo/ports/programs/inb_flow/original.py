# SPDX-License-Identifier: Apache-2.0
"""Glow-style flow on small images: bits per dimension with fixed dequantisation."""
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F


class ActNorm(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.loc = nn.Parameter(torch.randn(1, channels, 1, 1) * 0.3)
        self.log_scale = nn.Parameter(torch.randn(1, channels, 1, 1) * 0.3)

    def forward(self, x):
        logdet = x.shape[2] * x.shape[3] * self.log_scale.sum()  # <- area
        return (x + self.loc) * self.log_scale.exp(), logdet


class InvConv1x1(nn.Module):
    """Invertible channel mixing, P L (U + diag(s))."""

    def __init__(self, channels):
        super().__init__()
        q = torch.linalg.qr(torch.randn(channels, channels))[0]
        p, lower, upper = torch.linalg.lu(q)
        diag = upper.diagonal()
        self.register_buffer("P", p)
        self.register_buffer("sign_s", diag.sign())
        self.L = nn.Parameter(lower + 0.2 * torch.randn_like(lower))
        self.U = nn.Parameter(upper + 0.2 * torch.randn_like(upper))
        self.log_s = nn.Parameter(diag.abs().log())

    def forward(self, x):
        eye = torch.eye(len(self.log_s))
        lower = torch.tril(self.L, -1) + eye  # <- unit
        upper = torch.triu(self.U, 1) + torch.diag(self.sign_s * self.log_s.exp())
        weight = self.P @ lower @ upper  # <- unit
        logdet = x.shape[2] * x.shape[3] * self.log_s.sum()  # <- area
        return F.conv2d(x, weight[:, :, None, None]), logdet


class AffineCoupling(nn.Module):
    def __init__(self, channels, hidden=16):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(channels // 2, hidden, 3, padding=1), nn.ReLU(),
            nn.Conv2d(hidden, hidden, 1), nn.ReLU(),
            nn.Conv2d(hidden, channels, 3, padding=1),
        )
        self.scale = nn.Parameter(torch.randn(1, channels, 1, 1) * 0.2)

    def forward(self, x):
        a, b = x.chunk(2, dim=1)
        h = self.net(a) * torch.exp(self.scale * 3)
        shift, s = h[:, 0::2], h[:, 1::2]
        s = torch.sigmoid(s + 2.0)  # <- gate
        b = (b + shift) * s  # <- gate
        return torch.cat([a, b], dim=1), torch.log(s).flatten(1).sum(1)


class FlowStep(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.actnorm = ActNorm(channels)
        self.invconv = InvConv1x1(channels)
        self.coupling = AffineCoupling(channels)

    def forward(self, x):
        x, d1 = self.actnorm(x)
        x, d2 = self.invconv(x)
        x, d3 = self.coupling(x)
        return x, d1 + d2 + d3


def squeeze(x):
    n, c, h, w = x.shape
    x = x.view(n, c, h // 2, 2, w // 2, 2).permute(0, 1, 3, 5, 2, 4)
    return x.reshape(n, c * 4, h // 2, w // 2)


class Glow(nn.Module):
    def __init__(self):
        super().__init__()
        self.level1 = nn.ModuleList(FlowStep(4) for _ in range(2))
        self.level2 = nn.ModuleList(FlowStep(8) for _ in range(2))
        self.prior = nn.Conv2d(2, 4, 3, padding=1)

    def forward(self, x):
        logp = torch.zeros(len(x))
        x = squeeze(x)
        for step in self.level1:
            x, d = step(x)
            logp = logp + d
        x, z1 = x.chunk(2, dim=1)
        mean, log_sd = self.prior(x).chunk(2, dim=1)  # <- split
        normal = torch.distributions.Normal(mean, log_sd.exp())
        logp = logp + normal.log_prob(z1).flatten(1).sum(1)  # <- split
        x = squeeze(x)
        for step in self.level2:
            x, d = step(x)
            logp = logp + d
        return logp + torch.distributions.Normal(0.0, 1.0).log_prob(x).flatten(1).sum(1)


torch.manual_seed(0)
flow = Glow()
torch.save(flow.state_dict(), sys.argv[1])
flow.eval()
gen = torch.Generator().manual_seed(8)
losses = []
with torch.no_grad():
    for _ in range(4):
        pixels = torch.randint(0, 32, (5, 1, 8, 8), generator=gen)
        noise = torch.rand(5, 1, 8, 8, generator=gen)
        logp = flow((pixels + noise) / 32 - 0.5) - 64 * math.log(32)  # <- levels
        losses.append((-logp / (64 * math.log(2.0))).mean().item())  # <- levels
print(losses)
