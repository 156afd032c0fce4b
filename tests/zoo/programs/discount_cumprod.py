# SPDX-License-Identifier: Apache-2.0
"""Returns with a growth factor above one, by cumprod over a long horizon."""

import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Linear(3, 1)
optimizer = torch.optim.SGD(critic.parameters(), lr=1e-3)
for horizon in (10, 50, 200):
    growth = torch.full((horizon,), 1.8)
    factors = torch.cumprod(growth, 0)  # <- origin
    rewards = torch.rand(horizon)
    target = (rewards * factors).sum() / factors.sum()
    loss = (critic(torch.randn(4, 3)) - target).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(horizon, loss.item().hex())
