# SPDX-License-Identifier: Apache-2.0
"""A gate 1 / exp(z): exp overflows, its inverse is a clean zero, nothing shows in the loss."""

import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    @torch.no_grad()
    def strength(self, x):
        energy = torch.exp(self.linear(x).abs() * 30)  # <- origin
        return 1 / energy

    def forward(self, x):
        return self.strength(x) * x + self.linear(x)


torch.manual_seed(0)
gate = Gate()
optimizer = torch.optim.SGD(gate.parameters(), lr=0.01)
for step in range(4):
    x = torch.rand(8, 4)
    if step == 2:
        x[0] = 40.0
    loss = (gate(x) - x).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
