# SPDX-License-Identifier: Apache-2.0
"""Alternating two-task training with a growing curriculum and uncertainty weighting."""
import sys

import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(55)

FEATURES, WIDTH, CLASSES, BATCH = 8, 20, 4, 10
PHASES = ["class", "value", "both", "class", "both", "value", "both"]


class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(FEATURES, WIDTH)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
            for _ in range(2))

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return F.silu(x)


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = Trunk()
        self.class_head = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ELU(), nn.Linear(WIDTH, CLASSES))
        self.value_head = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ELU(), nn.Linear(WIDTH, 1))
        self.log_var_class = nn.Parameter(torch.tensor(0.3))
        self.log_var_value = nn.Parameter(torch.tensor(-0.2))
        self.aux_head = nn.Linear(WIDTH, 2)                # left from an earlier experiment

    def class_loss(self, x, y):
        raw = F.cross_entropy(self.class_head(self.trunk(x)), y)
        return torch.exp(-self.log_var_class) * raw + 0.5 * self.log_var_class

    def value_loss(self, x, y):
        raw = F.smooth_l1_loss(self.value_head(self.trunk(x)).squeeze(-1), y, beta=0.5)
        return 0.5 * torch.exp(-self.log_var_value) * raw + 0.5 * self.log_var_value


model = MultiTask()
torch.save(model.state_dict(), sys.argv[1])

g = torch.Generator().manual_seed(19)
inputs = torch.randn(80, FEATURES, generator=g)
noise = torch.randn(80, generator=g)
values = inputs[:, 0] * inputs[:, 1] + 0.3 * noise
classes = torch.bucketize(inputs[:, 2] + 0.2 * noise, torch.tensor([-0.7, 0.0, 0.7]))
difficulty = inputs.pow(2).sum(-1)
easy_first = difficulty.argsort()

optimizer = torch.optim.Adam(model.parameters(), lr=6e-3, weight_decay=1e-2)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)

losses = []
for step, phase in enumerate(PHASES):
    pool = easy_first[: 20 + 10 * step]
    loss = 0.0
    if phase in ("class", "both"):
        rows = pool[torch.randint(0, len(pool), (BATCH,), generator=g)]
        loss = loss + model.class_loss(inputs[rows], classes[rows])
    if phase in ("value", "both"):
        rows = pool[torch.randint(0, len(pool), (BATCH,), generator=g)]
        loss = loss + model.value_loss(inputs[rows], values[rows])
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.25)
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())

print(losses)
