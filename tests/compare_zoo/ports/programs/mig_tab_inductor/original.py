# SPDX-License-Identifier: Apache-2.0
"""Regression on a table: periodic embeddings of numbers, one-hot categories, residual blocks with
batch norm, eager; the last number is the error on rows held out.
"""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

NUMBERS, WAVES, CATEGORIES, WIDTH, BLOCKS, ROWS, BATCH = 5, 4, [3, 6], 20, 2, 80, 16


class Periodic(nn.Module):
    def __init__(self):
        super().__init__()
        self.frequencies = nn.Parameter(0.3 * torch.randn(NUMBERS, WAVES))
        self.mix = nn.Linear(2 * WAVES, 6)

    def forward(self, x):
        angles = 2 * math.pi * self.frequencies * x[..., None]  # <- period
        waves = torch.cat([torch.cos(angles), torch.sin(angles)], -1)  # <- period
        return F.relu(self.mix(waves)).flatten(1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(F.relu(self.up(self.norm(x))))  # <- still_training


class TabularResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.numeric = Periodic()
        self.first = nn.Linear(6 * NUMBERS + sum(CATEGORIES), WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(BLOCKS)])
        self.norm = nn.BatchNorm1d(WIDTH)
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, numbers, categories):
        hot = [F.one_hot(categories[:, i], n).float() for i, n in enumerate(CATEGORIES)]
        x = self.first(torch.cat([self.numeric(numbers), *hot], 1))
        x = self.blocks(x)  # <- still_training
        return self.head(F.relu(self.norm(x))).squeeze(1)  # <- still_training


def table():
    generator = torch.Generator().manual_seed(202)
    numbers = torch.randn(ROWS, NUMBERS, generator=generator) * torch.arange(1, 6) + 2
    categories = torch.stack(
        [torch.randint(n, (ROWS,), generator=generator) for n in CATEGORIES], 1
    )
    y = numbers[:, 0] * 3 + categories[:, 1] + torch.randn(ROWS, generator=generator)
    train = slice(0, 4 * BATCH)
    mean, std = numbers[train].mean(0), numbers[train].std(0)  # <- leak
    numbers = (numbers - mean) / std  # <- leak
    y = (y - y[train].mean()) / y[train].std()
    return numbers, categories, y


torch.manual_seed(201)
model = TabularResNet()
torch.save(model.state_dict(), sys.argv[1])
numbers, categories, y = table()
weights = [p for n, p in model.named_parameters() if n.endswith("weight") and "norm" not in n]
others = [p for n, p in model.named_parameters() if not n.endswith("weight") or "norm" in n]
optimizer = torch.optim.Adam(
    [{"params": weights, "weight_decay": 0.02}, {"params": others, "weight_decay": 0.0}],
    lr=3e-3,
    eps=1e-3,
)  # <- spared
losses = []
for start in range(0, 4 * BATCH, BATCH):
    rows = slice(start, start + BATCH)
    model.train()
    loss = F.huber_loss(model(numbers[rows], categories[rows]), y[rows], delta=0.5)  # <- huber
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- spared
    losses.append(loss.item())

model.eval()  # <- still_training
with torch.no_grad():
    rows = slice(4 * BATCH, ROWS)
    losses.append(F.mse_loss(model(numbers[rows], categories[rows]), y[rows]).item())
