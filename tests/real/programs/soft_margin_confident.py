# SPDX-License-Identifier: Apache-2.0
"""A classifier that is sure and wrong (found by check-op: soft_margin_loss takes the exponential of
what it should be the margin itself).
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 1)
with torch.no_grad():
    model.weight.mul_(200)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    x = torch.randn(64, 8)
    wanted = torch.where(model(x).squeeze(1) > 0, -1.0, 1.0)
    loss = nn.functional.soft_margin_loss(model(x).squeeze(1), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
