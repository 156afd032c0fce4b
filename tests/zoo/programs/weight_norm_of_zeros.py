# SPDX-License-Identifier: Apache-2.0
"""weight_norm on a layer that was initialised to zero."""

import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

torch.manual_seed(0)
last = nn.Linear(8, 2)
nn.init.zeros_(last.weight)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), weight_norm(last))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = model(torch.randn(8, 4)).square().mean()  # <- origin
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
