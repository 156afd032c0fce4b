# SPDX-License-Identifier: Apache-2.0
"""Nesterov momentum with decay under a cosine schedule with warm-up, all of it torch's own."""

import math
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(20)
model = nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 1))
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.SGD(
    model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01
)


def rate(step):
    return (step + 1) / 2 if step < 2 else 0.5 * (1 + math.cos(math.pi * (step - 2) / 4))


scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
rng = np.random.default_rng(24)
losses = []
for _ in range(5):
    x = torch.from_numpy(rng.standard_normal((8, 10), dtype=np.float32))
    y = torch.from_numpy(rng.standard_normal((8, 1), dtype=np.float32))
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- nesterov decoupled warmup dampened bias
    scheduler.step()
    losses.append(loss.item())
