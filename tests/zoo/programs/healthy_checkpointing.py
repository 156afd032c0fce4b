# SPDX-License-Identifier: Apache-2.0
"""Activation checkpointing, both kinds, with dropout whose random state is restored."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
first = nn.Sequential(nn.Linear(6, 24), nn.GELU(), nn.Dropout(0.3), nn.Linear(24, 6))
second = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Dropout(0.3), nn.Linear(24, 1))
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
for step in range(4):
    x = torch.randn(8, 6, requires_grad=True)
    h = checkpoint(first, x, use_reentrant=False)
    loss = checkpoint(second, h, use_reentrant=True).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
