# SPDX-License-Identifier: Apache-2.0
"""Linear regression with a learning rate at which every step overshoots, until float32 ends."""

import torch
from torch import nn


class Regression(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(10, 1)

    def forward(self, x):
        return self.linear(x)


torch.manual_seed(0)
model = Regression()
optimizer = torch.optim.SGD(model.parameters(), lr=1e4)
x = torch.randn(128, 10)
y = x.sum(1, keepdim=True)
for step in range(7):
    loss = (model(x) - y).square().mean()  # <- origin
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
