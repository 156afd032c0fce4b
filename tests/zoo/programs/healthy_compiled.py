# SPDX-License-Identifier: Apache-2.0
"""A compiled model that trains and evaluates."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 1))
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
x = torch.randn(32, 8)
y = x.sum(1, keepdim=True)
for step in range(4):
    loss = (compiled(x) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
with torch.no_grad():
    print(compiled(x).sum().item().hex())
