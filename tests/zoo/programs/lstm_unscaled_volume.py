# SPDX-License-Identifier: Apache-2.0
"""LSTM in float16 on raw trading volumes: the input projection overflows inside the layer."""

import torch
from torch import nn


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 16, batch_first=True)
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        states, _ = self.lstm(x)  # <- origin
        return self.head(states[:, -1])


torch.manual_seed(0)
model = Forecaster().half()
with torch.no_grad():
    model.lstm.weight_ih_l0.mul_(16)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(4):
    volume = torch.rand(2, 5, 4) * (100 if step < 2 else 40_000)
    loss = model(volume.half()).float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
