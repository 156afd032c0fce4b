# SPDX-License-Identifier: Apache-2.0
"""Graph classification with torch_geometric: GCN, two-headed GAT, mean pooling, Adam with L2."""
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, GCNConv, global_mean_pool

torch.set_num_threads(1)

FEATURES, CLASSES = 6, 3


def make_graphs(count, seed):
    """Random undirected graphs without multi-edges; some nodes stay isolated."""
    g = torch.Generator().manual_seed(seed)
    graphs = []
    for _ in range(count):
        n = int(torch.randint(5, 10, (1,), generator=g))
        upper = torch.triu(torch.rand(n, n, generator=g) < 0.35, 1)
        src, dst = upper.nonzero(as_tuple=True)
        edge_index = torch.stack([torch.cat([src, dst]), torch.cat([dst, src])])
        x = torch.randn(n, FEATURES, generator=g)
        y = torch.randint(0, CLASSES, (1,), generator=g)
        graphs.append(Data(x=x, edge_index=edge_index, y=y))
    return graphs


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = GCNConv(FEATURES, 12)
        self.conv2 = GATConv(12, 8, heads=2, concat=True)
        self.conv3 = GATConv(16, 10, heads=2, concat=False, negative_slope=0.1)
        self.lin = nn.Linear(10, CLASSES)

    def forward(self, data):
        x = self.conv1(data.x, data.edge_index).relu()
        x = F.elu(self.conv2(x, data.edge_index))
        x = F.elu(self.conv3(x, data.edge_index))
        return F.log_softmax(self.lin(global_mean_pool(x, data.batch)), dim=-1)


torch.manual_seed(30)
model = Net()
torch.save(model.state_dict(), sys.argv[1])

loader = DataLoader(make_graphs(12, seed=71), batch_size=4, shuffle=False)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4)

losses = []
model.train()
for epoch in range(2):
    for data in loader:
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), data.y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

print(losses)
