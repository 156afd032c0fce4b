# SPDX-License-Identifier: Apache-2.0
"""A ReLU recurrent network over a long sequence with a recurrent weight above one."""

import torch
from torch import nn


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.RNNCell(3, 16, nonlinearity="relu")
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        h = torch.zeros(x.shape[1], 16)
        for frame in x:
            h = self.cell(frame, h)  # <- origin
        return self.head(h)


torch.manual_seed(0)
model = Counter()
with torch.no_grad():
    model.cell.weight_hh.abs_().mul_(2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
for length in (20, 60, 120):
    x = torch.rand(length, 4, 3)
    loss = (model(x) - x.sum((0, 2)).unsqueeze(1)).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(length, loss.item().hex())
