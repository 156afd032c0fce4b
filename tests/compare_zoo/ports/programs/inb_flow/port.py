# SPDX-License-Identifier: Apache-2.0
"""Density scorer for 5-bit images, channels last: each step is one affine map and a coupling."""
import sys

import numpy as np
import torch
from torch import nn


class Step(nn.Module):
    """Act-norm and 1x1 mixing merged into y = x M + m; then a gated coupling."""

    def __init__(self, sd, prefix):
        super().__init__()
        get = lambda k: sd[prefix + k]  # noqa: E731
        log_s = get("invconv.log_s")
        lower = get("invconv.L").tril(-1)
        lower.fill_diagonal_(1.0)  # <- unit
        diagonal = get("invconv.sign_s") * log_s.exp()
        upper = get("invconv.U").triu(1) + diagonal.diag_embed()
        mixing = get("invconv.P") @ lower @ upper  # <- unit
        gain, loc = get("actnorm.log_scale").flatten().exp(), get("actnorm.loc").flatten()
        self.register_buffer("matrix", (mixing * gain).T.contiguous())
        self.register_buffer("offset", mixing @ (gain * loc))
        self.register_buffer("volume", log_s.sum() + gain.log().sum())
        rows = torch.arange(2 * (len(log_s) // 2)).view(-1, 2).T.flatten()
        stretch = (3 * get("coupling.scale")).exp().flatten()[rows]
        self.c1, self.c2, (weight, bias) = (
            (get(f"coupling.net.{i}.weight"), get(f"coupling.net.{i}.bias")) for i in (0, 2, 4)
        )
        self.c3 = weight[rows] * stretch.view(-1, 1, 1, 1), bias[rows] * stretch

    def conditioner(self, a):
        h = a.movedim(-1, 1)
        h = torch.conv2d(h, *self.c1, padding="same").relu()
        h = torch.conv2d(h, *self.c2).relu()
        return torch.conv2d(h, *self.c3, padding="same").movedim(1, -1)

    def forward(self, x, total):
        positions = x.shape[1] * x.shape[2]
        x = x @ self.matrix + self.offset
        total = total + positions * self.volume  # <- area
        keep, change = x.tensor_split(2, -1)
        shift, raw = self.conditioner(keep).tensor_split(2, -1)
        log_gate = -torch.log1p(torch.exp(-(raw + 2.0)))  # <- gate
        change = (change + shift) * log_gate.exp()  # <- gate
        return torch.cat([keep, change], -1), total + log_gate.sum((1, 2, 3))


def space_to_depth(x):
    n, h, w, c = x.shape
    x = x.reshape(n, h // 2, 2, w // 2, 2, c)
    return x.permute(0, 1, 3, 5, 2, 4).reshape(n, h // 2, w // 2, 4 * c)


def gaussian(x, mean=0.0, log_sd=None):
    if log_sd is None:
        log_sd = torch.zeros_like(x)
    dens = -0.5 * ((x - mean) * torch.exp(-log_sd)) ** 2 - log_sd - 0.5 * np.log(2 * np.pi)
    return dens.sum((1, 2, 3))


class DensityModel(nn.Module):
    def __init__(self, path):
        super().__init__()
        sd = torch.load(path, weights_only=True)
        self.fine = nn.ModuleList(Step(sd, f"level1.{i}.") for i in range(2))
        self.coarse = nn.ModuleList(Step(sd, f"level2.{i}.") for i in range(2))
        self.cond = sd["prior.weight"], sd["prior.bias"]

    def log_prob(self, x):
        total = x.new_zeros(x.shape[0])
        x = space_to_depth(x)
        for step in self.fine:
            x, total = step(x, total)
        x, factored = x[..., :2], x[..., 2:]
        stats = torch.conv2d(x.movedim(-1, 1), *self.cond, padding=1).movedim(1, -1)
        mean, log_sd = stats[..., :2], stats[..., 2:]  # <- split
        total = total + gaussian(factored, mean, log_sd)  # <- split
        x = space_to_depth(x)
        for step in self.coarse:
            x, total = step(x, total)
        return total + gaussian(x)


model = DensityModel(sys.argv[1]).eval()
g = torch.Generator().manual_seed(8)
losses = []
with torch.inference_mode():
    for _ in range(4):
        x = torch.randint(0, 32, (5, 1, 8, 8), generator=g)
        x = (x + torch.rand(5, 1, 8, 8, generator=g)) / 32 - 0.5
        nats = -model.log_prob(x.squeeze(1).unsqueeze(-1)) / 64
        bits = nats / np.log(2) + 5  # <- levels
        losses.append(bits.mean().item())  # <- levels
print(losses)
