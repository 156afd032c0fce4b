# SPDX-License-Identifier: Apache-2.0
"""Weights are quantised to float8 without a scale: values beyond 448 become NaN."""

import torch
from torch import nn


class Quantized(nn.Linear):
    def forward(self, x):
        weight = self.weight.to(torch.float8_e4m3fn).to(x.dtype)  # <- origin
        return nn.functional.linear(x, weight, self.bias)


torch.manual_seed(0)
model = nn.Sequential(Quantized(6, 6), nn.ReLU(), nn.Linear(6, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(4):
    if step == 2:
        with torch.no_grad():
            model[0].weight[2, 2] = 600.0
    loss = model(torch.randn(8, 6)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
