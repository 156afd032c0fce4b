# SPDX-License-Identifier: Apache-2.0
"""Graph attention over a list of edges (Velickovic et al., 2018)."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

NODES, FEATURES, HEADS, SIZE = 9, 6, 3, 4


class GATLayer(nn.Module):
    def __init__(self, inside):
        super().__init__()
        self.project = nn.Linear(inside, HEADS * SIZE, bias=False)
        self.source, self.target = (nn.Parameter(torch.randn(HEADS, SIZE)) for _ in range(2))

    def forward(self, x, edges):
        h = self.project(x).view(-1, HEADS, SIZE)
        a, b = (h * self.source).sum(-1), (h * self.target).sum(-1)
        begin, end = edges
        e = F.leaky_relu(a[begin] + b[end], 0.2)  # <- slope direction loops
        e = (e - e.max()).exp()  # <- direction loops
        total = torch.zeros(len(x), HEADS).index_add(0, end, e)  # <- direction loops
        alpha = e / total[end]  # <- direction loops
        return torch.zeros_like(h).index_add(
            0, end, alpha[..., None] * h[begin]
        )  # <- direction loops


class GAT(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = GATLayer(FEATURES), GATLayer(HEADS * SIZE)
        self.out = nn.Linear(SIZE, 3)

    def forward(self, x, edges):
        x = F.elu(self.one(x, edges).flatten(1))  # <- elu
        return self.out(self.two(x, edges).mean(1))  # <- heads


torch.manual_seed(13)
model = GAT()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)
rng = np.random.default_rng(13)
features = torch.from_numpy(rng.standard_normal((NODES, FEATURES), dtype=np.float32))
labels = torch.from_numpy(rng.integers(0, 3, NODES))
pairs = [(i, j) for i in range(NODES) for j in range(NODES) if i == j or rng.random() < 0.3]
edges = torch.tensor(pairs).T
losses = []
for _ in range(3):
    loss = F.cross_entropy(model(features, edges), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
