# SPDX-License-Identifier: Apache-2.0
"""The graph network whose first layer multiplies with a dense matrix; the second is as it was."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

NODES, FEATURES, HIDDEN, CLASSES, HEADS = 24, 10, 12, 4, 2


def add_self_loops(edge_index):
    loops = torch.arange(NODES).repeat(2, 1)
    return torch.cat([edge_index, loops], dim=1)  # <- loops


class GCNConv(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.lin = nn.Linear(inside, outside, bias=False)
        self.bias = nn.Parameter(torch.zeros(outside))

    def forward(self, x, edge_index):
        row, col = edge_index
        adjacency = torch.zeros(NODES, NODES)
        adjacency[col, row] = 1.0  # <- direction
        deg = adjacency.sum(1)  # <- loops normalised
        norm = deg.rsqrt()[:, None] * adjacency * deg.rsqrt()  # <- normalised direction
        return norm @ self.lin(x) + self.bias  # <- normalised direction


class GATConv(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.lin = nn.Linear(inside, HEADS * outside, bias=False)
        self.att_src = nn.Parameter(torch.randn(1, HEADS, outside))
        self.att_dst = nn.Parameter(torch.randn(1, HEADS, outside))

    def forward(self, x, edge_index):
        row, col = edge_index
        x = self.lin(x).view(NODES, HEADS, -1)
        alpha = (x * self.att_src).sum(-1)[row] + (x * self.att_dst).sum(-1)[col]
        alpha = F.leaky_relu(alpha, 0.2)  # <- slope
        index = col[:, None].expand_as(alpha)
        most = torch.full((NODES, HEADS), -torch.inf).scatter_reduce(0, index, alpha, "amax")
        alpha = (alpha - most[col]).exp()  # <- over
        total = torch.zeros(NODES, HEADS).scatter_add(0, index, alpha)  # <- over
        alpha = alpha / (total[col] + 1e-16)  # <- over
        out = torch.zeros_like(x).index_add(0, col, x[row] * alpha[..., None])
        return out.mean(dim=1)  # <- heads


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = GCNConv(FEATURES, HIDDEN), GATConv(HIDDEN, CLASSES)

    def forward(self, x, edge_index):
        edge_index = add_self_loops(edge_index)
        x = F.elu(self.conv1(x, edge_index))
        return F.log_softmax(self.conv2(x, edge_index), dim=1)


rng = np.random.default_rng(1)
edges = rng.permutation(NODES * NODES)[:90]
edges = edges[edges // NODES != edges % NODES]
edge_index = torch.from_numpy(np.stack([edges // NODES, edges % NODES]))
x = torch.from_numpy(rng.standard_normal((NODES, FEATURES), dtype=np.float32))
y = torch.from_numpy(rng.integers(0, CLASSES, NODES))
train_mask = torch.from_numpy(rng.random(NODES) < 0.6)
model = Net()
model.load_state_dict(torch.load(sys.argv[1]))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
losses = []
for _ in range(3):
    optimizer.zero_grad()
    loss = F.nll_loss(model(x, edge_index)[train_mask], y[train_mask])  # <- masked
    loss.backward()
    optimizer.step()  # <- decay
    losses.append(loss.item())
