# SPDX-License-Identifier: Apache-2.0
"""A GCN on a directed citation-like graph, by edge lists: node classification with a train mask and batch norm."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


def make_graph(num_nodes=60, num_features=20, num_classes=5):
    gen = torch.Generator().manual_seed(17)
    linked = torch.rand(num_nodes, num_nodes, generator=gen) < 0.07
    linked.fill_diagonal_(False)
    edge_index = linked.nonzero().t().contiguous()
    x = torch.rand(num_nodes, num_features, generator=gen).bernoulli(generator=gen) + 0.1
    x = x / x.sum(dim=1, keepdim=True)
    y = torch.randint(0, num_classes, (num_nodes,), generator=gen)
    train_mask = torch.rand(num_nodes, generator=gen) < 0.4
    return x, edge_index, y, train_mask


def gcn_norm(edge_index, num_nodes):
    loops = torch.arange(num_nodes).repeat(2, 1)
    edge_index = torch.cat([edge_index, loops], dim=1)  # <- degree_without_loops
    source, target = edge_index  # <- edge_direction
    degree = torch.zeros(num_nodes).index_add_(0, target, torch.ones(target.numel()))  # <- degree_without_loops
    scale = degree.pow(-0.5)
    return source, target, scale[source] * scale[target]


class GCNConv(nn.Module):
    def __init__(self, in_channels, out_channels, bias=True):
        super().__init__()
        self.lin = nn.Linear(in_channels, out_channels, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None
        nn.init.xavier_uniform_(self.lin.weight)

    def forward(self, x, graph):
        source, target, weight = graph
        x = self.lin(x)
        messages = weight[:, None] * x[source]  # <- edge_direction
        out = torch.zeros_like(x).index_add(0, target, messages)  # <- edge_direction
        return out if self.bias is None else out + self.bias


class GCN(nn.Module):
    def __init__(self, in_channels, hidden, out_channels):
        super().__init__()
        self.conv1 = GCNConv(in_channels, hidden, bias=False)
        self.bn1 = nn.BatchNorm1d(hidden, momentum=0.1)  # <- bn_momentum
        self.conv2 = GCNConv(hidden, out_channels)

    def forward(self, x, graph):
        x = F.relu(self.bn1(self.conv1(x, graph)))  # <- bn_momentum
        return F.log_softmax(self.conv2(x, graph), dim=1)


x, edge_index, y, train_mask = make_graph()
graph = gcn_norm(edge_index, x.size(0))

torch.manual_seed(5)
model = GCN(x.size(1), 16, 5)
torch.save(model.state_dict(), sys.argv[1])

optimizer = torch.optim.Adam([
    {"params": model.conv1.parameters(), "weight_decay": 0.02},  # <- decay_on_all_layers
    {"params": list(model.bn1.parameters()) + list(model.conv2.parameters()), "weight_decay": 0.0},  # <- decay_on_all_layers
], lr=0.02)

losses = []
for epoch in range(5):
    model.train()
    if epoch >= 3:
        model.bn1.eval()
    optimizer.zero_grad()
    out = model(x, graph)
    loss = F.nll_loss(out[train_mask], y[train_mask])  # <- loss_over_all_nodes
    loss.backward()
    optimizer.step()  # <- decay_on_all_layers
    losses.append(loss.item())
print(losses)
