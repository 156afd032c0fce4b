# SPDX-License-Identifier: Apache-2.0
"""Weight decay by hand in float16: the sum of squares of a large layer passes 65504."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(64, 64).half()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(4):
    if step == 2:
        with torch.no_grad():
            model.weight.mul_(70)
    x = torch.randn(8, 64).half()
    penalty = model.weight.square().sum()  # <- origin
    loss = model(x).float().square().mean() + 1e-4 * penalty.float()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
