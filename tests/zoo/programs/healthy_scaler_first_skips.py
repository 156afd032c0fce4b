# SPDX-License-Identifier: Apache-2.0
"""GradScaler starts far too high, skips its first steps on purpose, then trains."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**17)
for step in range(8):
    x = torch.randn(16, 8)
    with torch.autocast("cpu", dtype=torch.float16):
        prediction = model(x)
    loss = (prediction.float() - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    print(step, loss.item().hex(), scaler.get_scale())
