# SPDX-License-Identifier: Apache-2.0
"""Molecule property regression with graph attention, graph by graph; absolute errors."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(39)


class GATLayer(nn.Module):
    def __init__(self, ci, co):
        super().__init__()
        self.lin = nn.Linear(ci, co, bias=False)
        self.src = nn.Parameter(torch.randn(co) * 0.5)
        self.dst = nn.Parameter(torch.randn(co) * 0.5)
        self.bias = nn.Parameter(torch.randn(co) * 0.2)

    def forward(self, x, adj):
        h = self.lin(x)
        e = F.leaky_relu((h @ self.dst)[:, None] + (h @ self.src)[None, :], 0.2)
        e = e.masked_fill(adj == 0, float("-inf"))
        return e.softmax(1) @ h + self.bias


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.g1, self.g2 = GATLayer(5, 12), GATLayer(12, 12)
        self.out = nn.Linear(24, 1)

    def forward(self, x, adj):
        x = F.elu(self.g1(x, adj))
        x = F.elu(self.g2(x, adj))
        return self.out(torch.cat([x.mean(0), x.amax(0)])).squeeze()


def molecules(seed, count):
    g = torch.Generator().manual_seed(seed)
    for n in torch.randint(4, 9, (count,), generator=g).tolist():
        bonds = (torch.rand(n, n, generator=g) < 0.4).triu(1)
        adj = bonds | bonds.T | torch.eye(n, dtype=torch.bool)
        yield torch.randn(n, 5, generator=g), adj, torch.randn((), generator=g)


model = Regressor()
nn.init.normal_(model.out.weight, std=0.5)
torch.save(model.state_dict(), sys.argv[1])
model.eval()

losses = []
with torch.no_grad():
    for i, (x, adj, y) in enumerate(molecules(129, 5)):
        pred = model(x, adj)
        losses.append((pred - y).abs().item())
        print(f"molecule {i} ({len(x)} atoms): {pred.item():.4f} off by {losses[-1]:.4f}")
print(losses)
