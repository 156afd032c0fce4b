# SPDX-License-Identifier: Apache-2.0
"""A perceptron in bfloat16 trained by the fused optimizer (pytorch issue 191763: whole vectors of
the parameters stay as they were).
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).bfloat16()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
features, targets = torch.randn(64, 16).bfloat16(), torch.randint(0, 4, (64,))
for _ in range(4):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(features), targets)
    loss.backward()
    optimizer.step()
print(loss.item())
