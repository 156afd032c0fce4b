# SPDX-License-Identifier: Apache-2.0
"""Graph attention network on an edge list (message passing with scatter), semi-supervised."""
import sys

import torch
import torch.nn.functional as F
from torch import nn


class GATConv(nn.Module):
    def __init__(self, in_channels, out_channels, heads, concat=True, negative_slope=0.2):
        super().__init__()
        self.heads, self.out_channels, self.concat = heads, out_channels, concat
        self.negative_slope = negative_slope  # <- leaky_slope
        self.lin = nn.Linear(in_channels, heads * out_channels, bias=False)
        self.att_src = nn.Parameter(torch.empty(1, heads, out_channels))
        self.att_dst = nn.Parameter(torch.empty(1, heads, out_channels))
        self.bias = nn.Parameter(torch.zeros(heads * out_channels if concat else out_channels))
        for w in (self.lin.weight, self.att_src, self.att_dst):
            nn.init.xavier_uniform_(w)

    def forward(self, x, edge_index):
        src, dst = edge_index  # <- edge_direction
        n = x.size(0)
        x = self.lin(x).view(n, self.heads, self.out_channels)
        alpha_src = (x * self.att_src).sum(-1)
        alpha_dst = (x * self.att_dst).sum(-1)
        alpha = alpha_src[src] + alpha_dst[dst]  # <- edge_direction
        alpha = F.leaky_relu(alpha, self.negative_slope)  # <- leaky_slope
        index = dst.unsqueeze(-1).expand_as(alpha)
        top = torch.full((n, self.heads), float("-inf"))
        top = top.scatter_reduce(0, index, alpha.detach(), reduce="amax")
        alpha = (alpha - top[dst]).exp()
        total = torch.zeros(n, self.heads).index_add(0, dst, alpha)  # <- edge_direction
        alpha = alpha / (total[dst] + 1e-16)
        message = x[src] * alpha.unsqueeze(-1)  # <- edge_direction
        out = torch.zeros(n, self.heads, self.out_channels)
        out = out.index_add(0, dst, message)  # <- edge_direction
        if self.concat:
            out = out.view(n, self.heads * self.out_channels)  # <- head_concat
        else:
            out = out.mean(dim=1)
        return out + self.bias


class GAT(nn.Module):
    def __init__(self, features, hidden, classes, heads):
        super().__init__()
        self.conv1 = GATConv(features, hidden, heads)
        self.conv2 = GATConv(hidden * heads, classes, 2, concat=False)

    def forward(self, x, edge_index):
        x = F.elu(self.conv1(x, edge_index))  # <- head_concat
        return self.conv2(x, edge_index)  # <- head_concat


def add_self_loops(edge_index, num_nodes):
    loop = torch.arange(num_nodes)
    return torch.cat([edge_index, torch.stack([loop, loop])], dim=1)


def toy_graph(num_nodes=20, features=10, classes=4):
    g = torch.Generator().manual_seed(42)
    x = torch.randn(num_nodes, features, generator=g)
    y = torch.randint(0, classes, (num_nodes,), generator=g)
    links = torch.rand(num_nodes, num_nodes, generator=g) < 0.2
    links.fill_diagonal_(False)
    train_mask = torch.rand(num_nodes, generator=g) < 0.6
    return x, y, links.nonzero().t(), train_mask  # row: from, column: to


torch.manual_seed(0)
model = GAT(10, 5, 4, heads=3)
torch.save(model.state_dict(), sys.argv[1])

x, y, edge_index, train_mask = toy_graph()
edge_index = add_self_loops(edge_index, x.size(0))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)  # <- moment_correction

losses = []
for epoch in range(5):
    model.train()
    optimizer.zero_grad()
    out = F.log_softmax(model(x, edge_index), dim=1)
    loss = F.nll_loss(out[train_mask], y[train_mask])  # <- train_rows
    loss.backward()
    optimizer.step()  # <- moment_correction
    losses.append(loss.item())
print(losses)
