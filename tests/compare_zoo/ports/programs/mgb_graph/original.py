# SPDX-License-Identifier: Apache-2.0
"""Node classification on a directed graph: a SAGE layer and two GCN layers, scatter over edges."""
import sys

import torch
from torch import nn
import torch.nn.functional as F

NODES, FEATS, HIDDEN, CLASSES, EDGES = 40, 9, 16, 4, 130


class SAGEConv(nn.Module):
    """Mean over the in-neighbours, one linear for them and one for the node itself."""

    def __init__(self, cin, cout):
        super().__init__()
        self.lin_l = nn.Linear(cin, cout)
        self.lin_r = nn.Linear(cin, cout, bias=False)

    def forward(self, x, edge_index):
        src, dst = edge_index
        total = x.new_zeros(x.shape).index_add(0, dst, x[src])  # <- direction
        count = torch.bincount(dst, minlength=len(x)).clamp(min=1)  # <- direction
        mean = total / count[:, None]  # <- direction
        return F.normalize(self.lin_l(mean) + self.lin_r(x), dim=-1)  # <- row_length


class GCNConv(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.lin = nn.Linear(cin, cout, bias=False)
        self.bias = nn.Parameter(torch.zeros(cout))

    def forward(self, x, edge_index):
        loops = torch.arange(len(x))
        src = torch.cat([edge_index[0], loops])
        dst = torch.cat([edge_index[1], loops])
        deg = x.new_zeros(len(x)).index_add(0, dst, torch.ones(len(dst)))  # <- degree
        norm = deg[src].rsqrt() * deg[dst].rsqrt()  # <- degree
        messages = self.lin(x)[src] * norm[:, None]  # <- degree
        out = x.new_zeros(len(x), self.bias.numel()).index_add(0, dst, messages)  # <- degree
        return out + self.bias


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.sage = SAGEConv(FEATS, HIDDEN)
        self.gcn1 = GCNConv(HIDDEN, HIDDEN)
        self.gcn2 = GCNConv(HIDDEN, CLASSES)

    def forward(self, x, edge_index):
        x = F.relu(self.sage(x, edge_index))
        x = F.relu(self.gcn1(x, edge_index)) + x
        return self.gcn2(x, edge_index)


def make_graph():
    gen = torch.Generator().manual_seed(13)
    keys = torch.randperm(NODES * NODES, generator=gen)
    keys = keys[keys // NODES != keys % NODES][:EDGES]
    x = torch.rand(NODES, FEATS, generator=gen)
    y = torch.randint(0, CLASSES, (NODES,), generator=gen)
    train = torch.rand(NODES, generator=gen) < 0.5
    return x, torch.stack([keys // NODES, keys % NODES]), y, train


torch.manual_seed(0)
model = Net()
torch.save(model.state_dict(), sys.argv[1])

x, edge_index, y, train_mask = make_graph()
x = x / x.sum(dim=1, keepdim=True)
first = list(model.sage.parameters())
later = list(model.gcn1.parameters()) + list(model.gcn2.parameters())
optimizer = torch.optim.Adam(
    [
        {"params": first, "weight_decay": 5e-3},  # <- decay_first
        {"params": later, "weight_decay": 0.0},  # <- decay_first
    ],
    lr=0.02,
    eps=1e-5,
)

losses = []
for epoch in range(5):
    optimizer.zero_grad()
    logits = model(x, edge_index)
    loss = F.cross_entropy(logits[train_mask], y[train_mask])  # <- train_rows
    loss.backward()
    optimizer.step()  # <- decay_first
    losses.append(loss.item())
print(losses)
