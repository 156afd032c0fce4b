# SPDX-License-Identifier: Apache-2.0
"""Node classification with a two-layer GAT on an edge list (index_add, edge softmax)."""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(8)

NUM_NODES, NUM_FEATURES, NUM_CLASSES = 48, 20, 4


def make_graph():
    g = torch.Generator().manual_seed(123)
    y = torch.randint(0, NUM_CLASSES, (NUM_NODES,), generator=g)
    x = torch.randn(NUM_NODES, NUM_FEATURES, generator=g)
    x[:, :NUM_CLASSES] += 1.5 * F.one_hot(y, NUM_CLASSES)
    same = y[:, None] == y[None, :]
    prob = torch.where(same, 0.3, 0.06)
    adj = torch.rand(NUM_NODES, NUM_NODES, generator=g) < prob
    adj.fill_diagonal_(False)
    edge_index = adj.nonzero().t()  # row 0: source, row 1: destination
    loops = torch.arange(NUM_NODES).repeat(2, 1)
    edge_index = torch.cat([edge_index, loops], dim=1)  # <- self_loops
    train_mask = torch.rand(NUM_NODES, generator=g) < 0.5  # <- train_mask
    return x, y, edge_index, train_mask


def edge_softmax(score, index, num_nodes):
    peak = score.new_full((num_nodes, score.size(1)), float("-inf"))
    peak.scatter_reduce_(0, index[:, None].expand_as(score), score.detach(), "amax")
    ex = (score - peak[index]).exp()
    total = torch.zeros_like(peak).index_add(0, index, ex)  # <- softmax_axis
    return ex / total[index]  # <- softmax_axis


class GATConv(nn.Module):
    def __init__(self, in_channels, out_channels, heads, concat=True, bias=True, negative_slope=0.2):
        super().__init__()
        self.heads, self.out_channels, self.concat = heads, out_channels, concat
        self.negative_slope = negative_slope
        self.lin = nn.Linear(in_channels, heads * out_channels, bias=False)
        self.att_src = nn.Parameter(torch.empty(heads, out_channels))
        self.att_dst = nn.Parameter(torch.empty(heads, out_channels))
        width = heads * out_channels if concat else out_channels
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None
        for w in (self.lin.weight, self.att_src, self.att_dst):
            nn.init.xavier_uniform_(w, gain=1.2)

    def forward(self, x, edge_index):
        src, dst = edge_index
        h = self.lin(x).view(-1, self.heads, self.out_channels)
        a_src = (h * self.att_src).sum(-1)
        a_dst = (h * self.att_dst).sum(-1)
        score = F.leaky_relu(a_src[src] + a_dst[dst], self.negative_slope)
        alpha = edge_softmax(score, dst, x.size(0))  # <- softmax_axis
        out = torch.zeros_like(h).index_add(0, dst, h[src] * alpha[..., None])  # <- self_loops
        out = out.flatten(1) if self.concat else out.mean(1)
        return out if self.bias is None else out + self.bias


class GAT(nn.Module):
    def __init__(self, hidden=6, heads=3):
        super().__init__()
        self.conv1 = GATConv(NUM_FEATURES, hidden, heads, bias=False)
        self.bn = nn.BatchNorm1d(hidden * heads, momentum=0.1)  # <- bn_momentum
        self.conv2 = GATConv(hidden * heads, NUM_CLASSES, 2, concat=False)

    def forward(self, x, edge_index):
        x = F.elu(self.bn(self.conv1(x, edge_index)))  # <- bn_momentum
        return self.conv2(x, edge_index)


x, y, edge_index, train_mask = make_graph()
model = GAT()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam([
    {"params": [*model.conv1.parameters(), *model.bn.parameters()], "weight_decay": 0.05},  # <- l2_scope
    {"params": model.conv2.parameters(), "weight_decay": 0.0},  # <- l2_scope
], lr=0.02)

losses = []
for epoch in range(5):
    model.train()
    if epoch >= 3:
        model.bn.eval()  # freeze the statistics for the last epochs
    optimizer.zero_grad()
    out = model(x, edge_index)
    loss = F.cross_entropy(out[train_mask], y[train_mask])  # <- train_mask
    loss.backward()
    optimizer.step()  # <- l2_scope
    losses.append(loss.item())
print(losses)
