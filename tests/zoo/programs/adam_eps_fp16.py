# SPDX-License-Identifier: Apache-2.0
"""Adam on float16 weights: eps=1e-8 rounds to zero, and so do the squares of small gradients."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).half()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(3):
    x = torch.randn(64, 8).half()
    loss = (model(x) - x.mean(1, keepdim=True)).abs().mean() * 0.01
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- origin
    print(step, loss.item().hex())
