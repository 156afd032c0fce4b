# SPDX-License-Identifier: Apache-2.0
"""Glow (Kingma and Dhariwal, 2018): activation norms started from the first batch, invertible 1x1
convolutions, affine couplings, a split with a learned prior, a loss of bits per dimension.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

SIZE, HIDDEN, FLOWS, LEVELS, BINS, BATCH = 8, 8, 2, 2, 32, 4


class ActNorm(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.loc = nn.Parameter(torch.zeros(1, channels, 1, 1))
        self.log_scale = nn.Parameter(torch.zeros(1, channels, 1, 1))
        self.initialized = False

    def initialize(self, x):
        flat = x.detach().permute(1, 0, 2, 3).flatten(1)
        std = flat.std(1, unbiased=False).view(1, -1, 1, 1)  # <- spread
        self.loc.data.copy_(-flat.mean(1).view(1, -1, 1, 1))
        self.log_scale.data.copy_(torch.log(1 / (std + 1e-6)))  # <- spread
        self.initialized = True

    def forward(self, x):
        if not self.initialized:
            self.initialize(x)
        logdet = x.size(2) * x.size(3) * self.log_scale.sum()  # <- places
        return (x + self.loc) * self.log_scale.exp(), logdet


class InvConv2d(nn.Module):
    def __init__(self, channels):
        super().__init__()
        q, _ = torch.linalg.qr(torch.randn(channels, channels))
        self.weight = nn.Parameter(q.contiguous())

    def forward(self, x):
        logdet = x.size(2) * x.size(3) * torch.slogdet(self.weight)[1]
        return F.conv2d(x, self.weight[:, :, None, None]), logdet  # <- mixing


class Coupling(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(channels // 2, HIDDEN, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(HIDDEN, HIDDEN, 1),
            nn.ReLU(),
            nn.Conv2d(HIDDEN, channels, 3, padding=1),
        )

    def forward(self, x):
        xa, xb = x.chunk(2, 1)
        log_s, t = self.net(xa).chunk(2, 1)  # <- cross
        s = torch.sigmoid(log_s + 2)  # <- near_one
        yb = (xb + t) * s  # <- shift
        return torch.cat([xa, yb], 1), torch.log(s).flatten(1).sum(1)


class Block(nn.Module):
    """A level: squeezed, some flows, and half of it given away to a prior of the other half."""

    def __init__(self, channels, last):
        super().__init__()
        squeezed = channels * 4
        self.flows = nn.ModuleList(
            layer(squeezed) for _ in range(FLOWS) for layer in (ActNorm, InvConv2d, Coupling)
        )
        self.last = last
        kept = squeezed if last else squeezed // 2
        self.prior = nn.Conv2d(kept, 2 * (squeezed - (0 if last else kept)), 3, padding=1)

    def forward(self, x):
        b, c, h, w = x.shape
        x = x.view(b, c, h // 2, 2, w // 2, 2).permute(0, 1, 3, 5, 2, 4)  # <- squeeze
        x = x.reshape(b, c * 4, h // 2, w // 2)  # <- squeeze
        logdet = torch.zeros(b)
        for flow in self.flows:
            x, det = flow(x)
            logdet = logdet + det
        if self.last:
            z, prior = x, self.prior(torch.zeros_like(x))
        else:
            x, z = x.chunk(2, 1)
            prior = self.prior(x)
        mean, log_sd = prior.chunk(2, 1)  # <- prior
        log_p = -0.5 * (np.log(2 * np.pi) + (z - mean) ** 2 / torch.exp(2 * log_sd))  # <- prior
        log_p = log_p - log_sd  # <- prior
        return x, logdet, log_p.flatten(1).sum(1)


class Glow(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(3, False), Block(6, True)])

    def forward(self, x):
        logdet, log_p = torch.zeros(len(x)), torch.zeros(len(x))
        for block in self.blocks:
            x, det, p = block(x)
            logdet, log_p = logdet + det, log_p + p
        return log_p, logdet


torch.manual_seed(151)
model = Glow()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adamax(model.parameters(), lr=2e-3)
rng = np.random.default_rng(157)
losses = []
for _ in range(3):
    pixels = torch.from_numpy(rng.integers(0, 256, (BATCH, 3, SIZE, SIZE)))
    noise = torch.from_numpy(rng.random((BATCH, 3, SIZE, SIZE), dtype=np.float32))
    image = torch.floor(pixels / 8) / BINS - 0.5  # <- bits
    log_p, logdet = model(image + noise / BINS)
    count = 3 * SIZE * SIZE
    total = -np.log(BINS) * count + logdet + log_p  # <- bits
    loss = (-total / (np.log(2) * count)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
