# SPDX-License-Identifier: Apache-2.0
"""Graph pooling: the mean over a node's neighbours, and one node has none."""

import torch
from torch import nn


class Neighbours(nn.Module):
    def __init__(self):
        super().__init__()
        self.message = nn.Linear(5, 5)

    def forward(self, x, adjacency):
        total = adjacency @ self.message(x)
        return total / adjacency.sum(1, keepdim=True)  # <- origin


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Neighbours(), Neighbours()])
        self.head = nn.Linear(5, 1)

    def forward(self, x, adjacency):
        for layer in self.layers:
            x = layer(x, adjacency).relu()
        return self.head(x)


torch.manual_seed(0)
model = Graph()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(4):
    adjacency = (torch.rand(10, 10) < 0.4).float()
    adjacency[:, 0] = 1.0
    if step == 1:
        adjacency[7] = 0.0
    loss = model(torch.randn(10, 5), adjacency).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
