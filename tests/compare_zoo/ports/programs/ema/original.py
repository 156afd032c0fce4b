# SPDX-License-Identifier: Apache-2.0
"""A student and a teacher that is its exponential mean (mean teacher, Tarvainen and Valpola)."""

import copy
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(6)
student = nn.Sequential(
    nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 5)
)
teacher = copy.deepcopy(student)
for parameter in teacher.parameters():
    parameter.requires_grad_(False)
torch.save(student.state_dict(), sys.argv[1])
optimizer = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)
rng = np.random.default_rng(3)
losses = []
for _ in range(3):
    x = torch.from_numpy(rng.standard_normal((8, 12), dtype=np.float32))
    noise = torch.from_numpy(0.1 * rng.standard_normal((8, 12), dtype=np.float32))
    y = torch.from_numpy(rng.integers(0, 5, 8))
    scores = student(x + noise)
    with torch.no_grad():
        wanted = teacher(x).softmax(-1)
    kept = F.mse_loss(scores.softmax(-1), wanted)  # <- consistency
    loss = F.cross_entropy(scores, y) + 3.0 * kept  # <- weight consistency
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- attached
    with torch.no_grad():
        for mine, theirs in zip(teacher.parameters(), student.parameters()):
            mine.mul_(0.9).add_(theirs, alpha=0.1)  # <- decay early
    losses.append(loss.item())
