# SPDX-License-Identifier: Apache-2.0
"""BYOL: online network and predictor against a moving-average target, momentum on a cosine ramp."""

import copy
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn


class MLP(nn.Module):
    def __init__(self, dim, projection_size, hidden_size=24):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(dim, hidden_size, bias=False),
            nn.BatchNorm1d(hidden_size),
            nn.ReLU(inplace=True),
            nn.Linear(hidden_size, projection_size),
        )

    def forward(self, x):
        return self.net(x)


def loss_fn(x, y):
    x = F.normalize(x, dim=-1, p=2)  # <- cosine
    y = F.normalize(y, dim=-1, p=2)  # <- cosine
    return 2 - 2 * (x * y).sum(dim=-1)  # <- cosine


class BYOL(nn.Module):
    def __init__(self, base_momentum=0.8, total=6):
        super().__init__()
        self.base, self.total = base_momentum, total
        encoder = nn.Sequential(
            nn.Conv2d(2, 8, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.online = nn.Sequential(encoder, MLP(16, 12))
        self.target = copy.deepcopy(self.online)
        self.predictor = MLP(12, 12)

    @torch.no_grad()
    def update_moving_average(self, step):
        ramp = (math.cos(math.pi * step / self.total) + 1) / 2  # <- ramp
        beta = 1 - (1 - self.base) * ramp  # <- ramp
        for online, target in zip(self.online.parameters(), self.target.parameters()):
            target.data = target.data * beta + online.data * (1 - beta)  # <- ramp stale

    def forward(self, view1, view2):
        pred1 = self.predictor(self.online(view1))  # <- predictor
        pred2 = self.predictor(self.online(view2))  # <- predictor
        with torch.no_grad():
            proj1, proj2 = self.target(view1), self.target(view2)  # <- stale
        return (loss_fn(pred1, proj2) + loss_fn(pred2, proj1)).mean()  # <- predictor


torch.manual_seed(0)
learner = BYOL()
torch.save(learner.state_dict(), sys.argv[1])
decay, plain = [], []
for module in (learner.online, learner.predictor):
    for p in module.parameters():
        (decay if p.ndim > 1 else plain).append(p)  # <- groups
optimizer = torch.optim.SGD(
    [{"params": decay, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}],  # <- groups
    lr=0.3,
    momentum=0.9,
)
noise = torch.Generator().manual_seed(31)
losses = []
for step in range(5):
    image = torch.randn(8, 2, 12, 12, generator=noise)
    jitter = 0.3 * torch.randn(8, 2, 12, 12, generator=noise)
    loss = learner(image + jitter, image.flip(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- groups
    learner.update_moving_average(step)  # <- ramp stale
    losses.append(loss.item())
print(losses)
