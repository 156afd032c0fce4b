# SPDX-License-Identifier: Apache-2.0
"""Rotation regression by geodesic angle: acos has an infinite slope where prediction and target
agree.
"""

import torch
from torch import nn
from torch.nn import functional as F


def angle(a, b):
    cosine = (F.normalize(a, dim=1) * F.normalize(b, dim=1)).sum(1)
    return torch.acos(cosine.clamp(-1, 1))  # <- origin


torch.manual_seed(0)
model = nn.Linear(2, 2, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(4):
    x = torch.randn(6, 2)
    target = torch.randn(6, 2)
    if step == 2:
        with torch.no_grad():
            model.weight.copy_(torch.eye(2))
        x[0] = target[0] = torch.tensor([1.0, 0.0])
    loss = angle(model(x), target).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
