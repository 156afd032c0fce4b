# SPDX-License-Identifier: Apache-2.0
"""A pair of N-BEATS forecasters (trend and seasonality stacks), trained one after the other
with Lion, each on its own loss: sMAPE and MASE.
"""

import math
import sys

import torch
from torch import nn

BACK, AHEAD, WIDTH, DEGREE, HARMONICS, BATCH, MEMBERS = 12, 6, 24, 2, 2, 10, 2


class TrendBasis(nn.Module):
    def __init__(self):
        super().__init__()
        self.size = 2 * (DEGREE + 1)
        for name, length in (("backcast", BACK), ("forecast", AHEAD)):
            grid = torch.stack([(torch.arange(length) / length) ** i for i in range(DEGREE + 1)])
            self.register_buffer(name, grid, persistent=False)  # <- grid

    def forward(self, theta):
        half = DEGREE + 1
        return theta[:, half:] @ self.backcast, theta[:, :half] @ self.forecast  # <- grid


class SeasonalBasis(nn.Module):
    def __init__(self):
        super().__init__()
        self.size = 4 * HARMONICS
        for name, length in (("backcast", BACK), ("forecast", AHEAD)):
            t = torch.arange(length) / AHEAD
            angles = [2 * math.pi * k * t for k in range(1, HARMONICS + 1)]
            rows = [torch.cos(a) for a in angles] + [torch.sin(a) for a in angles]
            self.register_buffer(name, torch.stack(rows), persistent=False)

    def forward(self, theta):
        half = 2 * HARMONICS
        return theta[:, half:] @ self.backcast, theta[:, :half] @ self.forecast


class Block(nn.Module):
    def __init__(self, basis):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(BACK, WIDTH), nn.Linear(WIDTH, WIDTH)])
        self.parameters_of_basis = nn.Linear(WIDTH, basis.size)
        self.basis = basis

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))  # <- member flipped
        return self.basis(self.parameters_of_basis(x))


class NBeats(nn.Module):
    def __init__(self):
        super().__init__()
        trend, season = Block(TrendBasis()), Block(SeasonalBasis())
        # the blocks of the trend stack share their weights
        self.blocks = nn.ModuleList([trend, trend, season, Block(SeasonalBasis())])

    def forward(self, x, mask):
        residuals = x.flip(dims=(1,))  # <- flipped
        mask = mask.flip(dims=(1,))  # <- flipped
        forecast = x[:, -1:]
        for block in self.blocks:
            backcast, ahead = block(residuals)
            residuals = (residuals - backcast) * mask
            forecast = forecast + ahead
        return forecast


def smape(x, y, target):
    return 200 * ((y - target).abs() / (y.abs().detach() + target.abs())).mean()  # <- detached


def mase(x, y, target):
    scale = (x[:, 2:] - x[:, :-2]).abs().mean(dim=1, keepdim=True)
    return ((y - target).abs() / scale).mean()


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr, betas, weight_decay):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            (b1, b2), lr = group["betas"], group["lr"]
            for p in group["params"]:
                state = self.state[p]
                m = state.setdefault("m", torch.zeros_like(p))
                p.mul_(1 - lr * group["weight_decay"])
                p.add_(torch.sign(b1 * m + (1 - b1) * p.grad), alpha=-lr)  # <- betas
                m.mul_(b2).add_(p.grad, alpha=1 - b2)  # <- betas


torch.manual_seed(31)
models = nn.ModuleList([NBeats() for _ in range(MEMBERS)])  # <- member
torch.save(models.state_dict(), sys.argv[1])
losses = [0.0] * 4
for model, criterion in zip(models, (smape, mase)):
    optimizer = Lion(model.parameters(), lr=2e-3, betas=(0.9, 0.99), weight_decay=0.5)  # <- betas
    generator = torch.Generator().manual_seed(32)
    for step in range(4):
        series = torch.rand(BATCH, BACK + AHEAD, generator=generator) + 0.5
        known = torch.randint(BACK // 2, BACK + 1, (BATCH, 1), generator=generator)
        mask = (torch.arange(BACK) >= BACK - known).float()
        x, target = series[:, :BACK] * mask, series[:, BACK:]
        loss = criterion(x, model(x, mask), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses[step] += loss.item()
