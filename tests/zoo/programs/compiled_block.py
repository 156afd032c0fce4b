# SPDX-License-Identifier: Apache-2.0
"""A compiled model whose overflow happens inside the compiled region."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return torch.log(self.linear(x))  # <- origin


torch.manual_seed(0)
model = Model()
with torch.no_grad():
    model.linear.bias.fill_(5.0)
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(3):
    x = torch.rand(8, 4) * (1 if step < 2 else 40) - (0 if step < 2 else 20)
    target = torch.zeros(8, 4)
    loss = nn.functional.mse_loss(compiled(x), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
