# SPDX-License-Identifier: Apache-2.0
"""A generator and a discriminator with hinge losses and spectral-free norms (Miyato et al., 2018)."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(22)
make = nn.Sequential(
    nn.Linear(6, 48),
    nn.Unflatten(1, (12, 2, 2)),
    nn.BatchNorm2d(12),
    nn.ReLU(),
    nn.ConvTranspose2d(12, 3, 4, 2, 1),
    nn.Tanh(),
)
judge = nn.Sequential(nn.Conv2d(3, 12, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(48, 1))
torch.save({"make": make.state_dict(), "judge": judge.state_dict()}, sys.argv[1])
opt_make = torch.optim.SGD(make.parameters(), lr=0.05, momentum=0.5)
opt_judge = torch.optim.SGD(judge.parameters(), lr=0.1, momentum=0.5)
rng = np.random.default_rng(26)
losses = []
for _ in range(2):
    real = torch.from_numpy(rng.uniform(-1, 1, (5, 3, 4, 4)).astype(np.float32))
    noise = torch.from_numpy(rng.standard_normal((5, 6), dtype=np.float32))
    fake = make(noise)  # <- range
    scores = judge(real), judge(fake.detach())  # <- slope
    loss_judge = F.relu(1 - scores[0]).mean() + F.relu(1 + scores[1]).mean()  # <- hinge
    opt_judge.zero_grad()
    loss_judge.backward()
    opt_judge.step()  # <- rate
    loss_make = -judge(fake).mean()  # <- sign old
    opt_make.zero_grad()
    loss_make.backward()
    opt_make.step()
    losses += [loss_judge.item(), loss_make.item()]
