# SPDX-License-Identifier: Apache-2.0
"""A smoke run that leaves the training loop by exit(7) after two steps."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Bilinear(3, 3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    x = torch.randn(4, 3)
    loss = model(x, x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex(), flush=True)
    if step == 1:
        sys.exit(7)
