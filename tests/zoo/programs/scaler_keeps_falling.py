# SPDX-License-Identifier: Apache-2.0
"""GradScaler skips every step: the loss itself leaves float16, whatever the scale."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.second = nn.Linear(16, 1)

    def forward(self, x):
        return self.second(self.first(x) * 4096)  # <- origin


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
for step in range(8):
    x = 200 * torch.randn(16, 8)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = model(x).float().square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    print(step, loss.item().hex(), scaler.get_scale())
