# SPDX-License-Identifier: Apache-2.0
"""Regression whose targets, in pascal, are cast to float16 to save memory."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1)).half()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for step in range(4):
    x = torch.randn(32, 4)
    pressure = 20_000 + 1_000 * torch.randn(32, 1) + 30_000 * step
    target = pressure.to(torch.float16)  # <- origin
    loss = (model(x.half()).float() - target.float()).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
