# SPDX-License-Identifier: Apache-2.0
"""Fine until a library was upgraded. PYTHONPATH says which version is installed."""

import torch
from blocks import RMSNorm
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), RMSNorm(32), nn.SiLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    features = 0.01 * torch.randn(64, 16)
    loss = (model(features) - features.sum(dim=1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}  loss {loss.item():.6f}", flush=True)
