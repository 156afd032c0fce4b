# SPDX-License-Identifier: Apache-2.0
"""Two-layer graph attention network on edge lists with scatter softmax, semi-supervised nodes."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

N, FEAT, CLASSES = 24, 10, 4


def scatter_softmax(src, index, num_nodes):
    peak = torch.full((num_nodes, src.size(1)), float("-inf"))
    peak = peak.scatter_reduce(0, index[:, None].expand_as(src), src, "amax")
    out = (src - peak[index].detach()).exp()
    total = torch.zeros(num_nodes, src.size(1)).index_add(0, index, out)  # <- neighbour_axis
    return out / (total[index] + 1e-16)  # <- neighbour_axis


class GATConv(nn.Module):
    def __init__(self, in_channels, out_channels, heads, concat):
        super().__init__()
        self.heads, self.out_channels, self.concat = heads, out_channels, concat
        self.lin = nn.Linear(in_channels, heads * out_channels, bias=False)
        self.att_src = nn.Parameter(torch.empty(1, heads, out_channels))
        self.att_dst = nn.Parameter(torch.empty(1, heads, out_channels))
        width = heads * out_channels if concat else out_channels
        self.bias = nn.Parameter(torch.zeros(width))
        for w in (self.lin.weight, self.att_src, self.att_dst):
            nn.init.xavier_uniform_(w, gain=1.4)

    def forward(self, x, edge_index):
        x = self.lin(x).view(-1, self.heads, self.out_channels)
        alpha_src = (x * self.att_src).sum(-1)
        alpha_dst = (x * self.att_dst).sum(-1)
        row, col = edge_index
        alpha = F.leaky_relu(alpha_src[row] + alpha_dst[col], 0.2)  # <- leak_slope
        alpha = scatter_softmax(alpha, col, x.size(0))  # <- neighbour_axis
        out = torch.zeros_like(x).index_add(0, col, x[row] * alpha.unsqueeze(-1))
        out = out.flatten(1) if self.concat else out.mean(1)
        return out + self.bias


class GAT(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = GATConv(FEAT, 6, heads=3, concat=True)
        self.conv2 = GATConv(18, CLASSES, heads=2, concat=False)

    def forward(self, x, edge_index):
        x = F.elu(self.conv1(x, edge_index))
        return self.conv2(x, edge_index)


def build_graph():
    g = torch.Generator().manual_seed(31)
    adj = torch.rand(N, N, generator=g) < 0.15
    x = torch.randn(N, FEAT, generator=g)
    y = torch.randint(0, CLASSES, (N,), generator=g)
    train_mask = torch.rand(N, generator=g) < 0.5
    return adj, x, y, train_mask


torch.manual_seed(4)
model = GAT()
torch.save(model.state_dict(), sys.argv[1])

adj, x, y, train_mask = build_graph()
adj.fill_diagonal_(True)  # <- self_loops
edge_index = adj.nonzero().t()  # <- self_loops
x = x / x.abs().sum(1, keepdim=True).clamp(min=1.0)  # <- feature_norm
optimizer = torch.optim.Adam(
    [
        dict(params=model.conv1.parameters(), weight_decay=5e-2),  # <- decay_group
        dict(params=model.conv2.parameters(), weight_decay=0.0),  # <- decay_group
    ],
    lr=0.02,
)

losses = []
for epoch in range(5):
    model.train()
    optimizer.zero_grad()
    out = model(x, edge_index)
    loss = F.cross_entropy(out[train_mask], y[train_mask])
    loss.backward()
    optimizer.step()  # <- decay_group
    losses.append(float(loss))
print(losses)
