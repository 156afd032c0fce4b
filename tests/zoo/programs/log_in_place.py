# SPDX-License-Identifier: Apache-2.0
"""Log-price returns computed in place; one tick of the feed is negative."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(7, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(4):
    prices = torch.rand(16, 8) + 0.5
    if step == 1:
        prices[4, 2] = -1.0
    prices.log_()  # <- origin
    returns = prices.diff(dim=1)
    loss = (model(returns) - returns.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
