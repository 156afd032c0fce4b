# SPDX-License-Identifier: Apache-2.0
"""A window of past values, moved on by one in place (pytorch issue 144861: the first value fills
the row).
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
window = torch.zeros(4, 8)
for step in range(6):
    window[:, 1:] = window[:, :-1]
    window[:, 0] = float(step) + torch.arange(4)
    loss = (model(window) - step).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
