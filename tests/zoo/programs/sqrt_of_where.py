# SPDX-License-Identifier: Apache-2.0
"""The same signal with the guard inside: sqrt's gradient is infinite at 0, and where drops it
again.
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 6), nn.Tanh())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    power = model(torch.randn(16, 6))
    magnitude = torch.sqrt(torch.where(power > 0, power, 0.0))  # <- origin
    loss = (magnitude - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
