# SPDX-License-Identifier: Apache-2.0
"""Magnitudes of padded frames: the forward pass guards sqrt, the backward pass divides 0 by 0."""

import torch
from torch import nn

torch.manual_seed(0)
filters = nn.Linear(6, 6, bias=False)
optimizer = torch.optim.SGD(filters.parameters(), lr=0.1)
for step in range(4):
    frames = torch.randn(16, 6)
    if step >= 2:
        frames[12:] = 0
    power = filters(frames).square()
    magnitude = torch.where(power > 0, torch.sqrt(power), 0.0)  # <- origin
    loss = (magnitude - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
