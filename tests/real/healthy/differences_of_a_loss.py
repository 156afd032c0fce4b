# SPDX-License-Identifier: Apache-2.0
"""A gradient by differences with a step that float32 swallows."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
x, y = torch.randn(32, 6), torch.randn(32, 1)
with torch.no_grad():
    weight = model[0].weight
    for _ in range(4):
        before = nn.functional.mse_loss(model(x), y)
        weight[0, 0] += 1e-7
        print(((nn.functional.mse_loss(model(x), y) - before) / 1e-7).item())
