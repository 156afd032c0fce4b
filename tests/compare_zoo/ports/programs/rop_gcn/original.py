# SPDX-License-Identifier: Apache-2.0
"""Graph convolutional network on an edge list; full-batch node classification with a training mask."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


def add_self_loops(edge_index, num_nodes):
    loop = torch.arange(num_nodes).repeat(2, 1)
    return torch.cat([edge_index, loop], dim=1)


def gcn_norm(edge_index, num_nodes):
    src, dst = edge_index
    deg = torch.zeros(num_nodes).index_add_(0, dst, torch.ones(dst.numel()))  # <- duplicates_lost adjacency_transposed
    inv_sqrt = deg.pow(-0.5)
    inv_sqrt[inv_sqrt == float("inf")] = 0.0
    return inv_sqrt[src] * inv_sqrt[dst]


class GCNConv(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.lin = nn.Linear(in_channels, out_channels, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def reset_parameters(self):
        nn.init.xavier_uniform_(self.lin.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x, edge_index, edge_weight):
        src, dst = edge_index  # <- adjacency_transposed
        x = self.lin(x)
        messages = x[src] * edge_weight[:, None]  # <- adjacency_transposed
        out = torch.zeros_like(x).index_add_(0, dst, messages)  # <- duplicates_lost adjacency_transposed
        return out + self.bias


class GCN(nn.Module):
    def __init__(self, features, hidden, classes):
        super().__init__()
        self.conv1 = GCNConv(features, hidden)
        self.conv2 = GCNConv(hidden, hidden)
        self.conv3 = GCNConv(hidden, classes)
        for conv in (self.conv1, self.conv2, self.conv3):
            conv.reset_parameters()

    def forward(self, x, edge_index):
        edge_index = add_self_loops(edge_index, x.size(0))
        weight = gcn_norm(edge_index, x.size(0))
        x = F.relu(self.conv1(x, edge_index, weight))  # <- features_unnormalised
        x = x + F.relu(self.conv2(x, edge_index, weight))
        return self.conv3(x, edge_index, weight)


def load_graph(seed, nodes=36, features=20, classes=4, edges=110):
    gen = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (nodes,), generator=gen)
    x = (torch.rand(nodes, features, generator=gen) < 0.3).float()
    x[torch.arange(nodes), y] = 1.0
    edge_index = torch.randint(nodes, (2, edges), generator=gen)
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    # some citations are listed several times
    edge_index = torch.cat([edge_index, edge_index[:, :25]], dim=1)
    train_mask = torch.rand(nodes, generator=gen) < 0.5
    return x, y, edge_index, train_mask


def normalize_features(x):
    return x / x.sum(dim=1, keepdim=True).clamp(min=1.0)  # <- features_unnormalised


x, y, edge_index, train_mask = load_graph(5)
x = normalize_features(x)  # <- features_unnormalised
torch.manual_seed(42)
model = GCN(x.size(1), 16, 4)
torch.save(model.state_dict(), sys.argv[1])

optimizer = torch.optim.Adam(
    [
        {"params": model.conv1.parameters(), "weight_decay": 5e-3},  # <- decay_on_all_layers
        {"params": model.conv2.parameters(), "weight_decay": 5e-3},  # <- decay_on_all_layers
        {"params": model.conv3.parameters(), "weight_decay": 0.0},  # <- decay_on_all_layers
    ],
    lr=0.01,
)

losses = []
for epoch in range(5):
    model.train()
    optimizer.zero_grad()
    out = model(x, edge_index)  # <- features_unnormalised
    loss = F.cross_entropy(out[train_mask], y[train_mask])  # <- mask_mean_over_nodes
    loss.backward()
    optimizer.step()  # <- decay_on_all_layers
    losses.append(loss.item())
print(losses)
