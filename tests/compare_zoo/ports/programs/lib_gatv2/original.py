# SPDX-License-Identifier: Apache-2.0
"""Regression on small directed graphs with edge features: GATv2Conv, GraphNorm and attentional
pooling of torch_geometric.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GATv2Conv, GraphNorm
from torch_geometric.nn.aggr import AttentionalAggregation


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = GATv2Conv(6, 8, heads=3, edge_dim=4)
        self.norm1 = GraphNorm(24)
        self.conv2 = GATv2Conv(24, 12, heads=2, concat=False, edge_dim=4, residual=True)
        self.pool = AttentionalAggregation(gate_nn=nn.Linear(12, 1))
        self.lin = nn.Linear(12, 1)

    def forward(self, data):
        x = self.conv1(data.x, data.edge_index, data.edge_attr)  # <- direction loops
        x = F.elu(self.norm1(x, data.batch))  # <- mean_scale
        x = self.conv2(x, data.edge_index, data.edge_attr)  # <- direction loops
        x = self.pool(F.elu(x), data.batch)  # <- pooled
        return self.lin(x).squeeze(-1)


SIZES = [5, 8, 3, 7]


def graphs(generator):
    out = []
    for n in SIZES:
        x = torch.randn(n, 6, generator=generator)
        there = torch.rand(n, n, generator=generator) < 0.35
        there.fill_diagonal_(False)
        edge_index = there.nonzero().t()  # <- direction
        edge_attr = torch.randn(edge_index.size(1), 4, generator=generator)
        y = torch.randn(1, generator=generator)
        out.append(Data(x=x, edge_index=edge_index, edge_attr=edge_attr, y=y))
    return Batch.from_data_list(out)


torch.manual_seed(330)
model = Net()
with torch.no_grad():
    for p in model.norm1.parameters():
        p.add_(0.4 * torch.randn(p.shape))
    for name, p in model.named_parameters():
        if name.endswith("bias"):
            p.add_(0.2 * torch.randn(p.shape))
torch.save(model.state_dict(), sys.argv[1])

optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=0.05)  # <- coupled
generator = torch.Generator().manual_seed(331)
losses = []
for _ in range(4):
    batch = graphs(generator)
    optimizer.zero_grad()
    loss = F.smooth_l1_loss(model(batch), batch.y)
    loss.backward()
    optimizer.step()  # <- coupled
    losses.append(loss.item())
