# SPDX-License-Identifier: Apache-2.0
"""Real NVP as Dinh et al. (2017) have it: logits of dequantised pixels, affine couplings under
checkerboard masks, a squeeze, couplings under channel masks, the exact likelihood in bits.
"""

import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

BATCH, SIDE, HIDDEN, ALPHA = 6, 8, 16, 0.05


class STNet(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv_in = nn.Conv2d(channels, HIDDEN, 3, padding=1)
        self.conv_mid = nn.Conv2d(HIDDEN, HIDDEN, 1)
        self.conv_out = nn.Conv2d(HIDDEN, 2 * channels, 3, padding=1)

    def forward(self, x):
        x = F.relu(self.conv_in(x))
        x = x + F.relu(self.conv_mid(x))  # <- skip
        return self.conv_out(x)


def checkerboard_mask(reverse):
    rows, columns = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    mask = ((rows + columns) % 2).float()  # <- parity
    return (1 - mask if reverse else mask).view(1, 1, SIDE, SIDE)  # <- parity


def channel_mask(channels, reverse):
    mask = (torch.arange(channels) < channels // 2).float()
    return (1 - mask if reverse else mask).view(1, channels, 1, 1)


class AffineCoupling(nn.Module):
    def __init__(self, channels, mask):
        super().__init__()
        self.register_buffer("mask", mask)
        self.st_net = STNet(channels)
        self.rescale = nn.Parameter(torch.full((1, channels, 1, 1), 0.8))

    def forward(self, x, sldj):
        b = self.mask
        s, t = self.st_net(x * b).chunk(2, dim=1)  # <- parity
        s = self.rescale * torch.tanh(s)  # <- tanh
        s, t = s * (1 - b), t * (1 - b)  # <- counted parity
        x = x * s.exp() + t
        sldj = sldj + s.flatten(1).sum(-1)  # <- counted sign
        return x, sldj


class RealNVP(nn.Module):
    def __init__(self):
        super().__init__()
        self.checker = nn.ModuleList(
            AffineCoupling(1, checkerboard_mask(reverse)) for reverse in (False, True)
        )
        self.channel = nn.ModuleList(
            AffineCoupling(4, channel_mask(4, reverse)) for reverse in (False, True)
        )

    @staticmethod
    def preprocess(x):
        p = ALPHA + (1 - 2 * ALPHA) * x
        y = p.log() - (1 - p).log()
        ldj = math.log(1 - 2 * ALPHA) - p.log() - (1 - p).log()  # <- slope
        return y, ldj.flatten(1).sum(-1)

    @staticmethod
    def squeeze(x):
        b, c, h, w = x.shape
        x = x.view(b, c, h // 2, 2, w // 2, 2).permute(0, 1, 3, 5, 2, 4)  # <- squeeze
        return x.reshape(b, 4 * c, h // 2, w // 2)  # <- squeeze

    def forward(self, x):
        z, sldj = self.preprocess(x)
        for coupling in self.checker:
            z, sldj = coupling(z, sldj)
        z = self.squeeze(z)
        for coupling in self.channel:
            z, sldj = coupling(z, sldj)
        return z, sldj


class BitsPerDim(nn.Module):
    def forward(self, z, sldj):
        prior_ll = -0.5 * (z**2 + math.log(2 * math.pi))
        prior_ll = prior_ll.flatten(1).sum(-1) - math.log(256) * SIDE * SIDE
        return -(prior_ll + sldj).mean() / (math.log(2) * SIDE * SIDE)


rng = np.random.default_rng(41)
pixels = rng.integers(0, 256, (3, BATCH, 1, SIDE, SIDE)).astype(np.float32)
noise = rng.random((3, BATCH, 1, SIDE, SIDE), dtype=np.float32)
torch.manual_seed(17)
model = RealNVP()
torch.save(model.state_dict(), sys.argv[1])
loss_fn = BitsPerDim()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 3))
losses = []
for step in range(3):
    x = (torch.from_numpy(pixels[step]) + torch.from_numpy(noise[step])) / 256
    optimizer.zero_grad()
    z, sldj = model(x)
    loss = loss_fn(z, sldj)
    loss.backward()
    optimizer.step()  # <- warmup
    scheduler.step()  # <- warmup
    losses.append(loss.item())
