# SPDX-License-Identifier: Apache-2.0
"""A graph isomorphism network (Xu et al., 2019) for molecules: edges with features, a virtual node
that sees every other (Gilmer et al., 2017), sums of all layers read, tasks with missing labels.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

ATOMS, BONDS, DIM, LAYERS, TASKS, GRAPHS = 9, 4, 10, 3, 3, 5


class GINConv(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(DIM, 2 * DIM, bias=False),
            nn.BatchNorm1d(2 * DIM),
            nn.ReLU(),
            nn.Linear(2 * DIM, DIM, bias=False),
        )
        self.eps = nn.Parameter(torch.tensor([0.3]))
        self.bond_encoder = nn.Embedding(BONDS, DIM)

    def forward(self, x, edge_index, edge_attr):
        source, target = edge_index  # <- direction
        message = F.relu(x[source] + self.bond_encoder(edge_attr))  # <- direction message
        gathered = torch.zeros_like(x).index_add_(0, target, message)  # <- direction message
        return self.mlp((1 + self.eps) * x + gathered)  # <- self counted buffers


class GNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.atom_encoder = nn.Embedding(ATOMS, DIM)
        self.virtual_node = nn.Parameter(torch.randn(1, DIM) * 0.5)
        self.convs = nn.ModuleList(GINConv() for _ in range(LAYERS))
        self.norms = nn.ModuleList(nn.BatchNorm1d(DIM) for _ in range(LAYERS))
        self.virtual_mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(DIM, DIM), nn.ReLU()) for _ in range(LAYERS - 1)
        )
        self.head = nn.Linear(DIM, TASKS)

    def pooled(self, x, batch):
        return torch.zeros(GRAPHS, DIM).index_add_(0, batch, x)

    def forward(self, atoms, edge_index, edge_attr, batch):
        virtual = self.virtual_node.expand(GRAPHS, DIM)
        layers = [self.atom_encoder(atoms)]
        for n, (conv, norm) in enumerate(zip(self.convs, self.norms)):
            x = layers[-1] + virtual[batch]  # <- active
            h = norm(conv(x, edge_index, edge_attr))  # <- counted buffers
            layers.append(h if n == LAYERS - 1 else F.relu(h))  # <- active
            if n < LAYERS - 1:
                virtual = virtual + self.virtual_mlps[n](self.pooled(x, batch))  # <- virtual
        nodes = torch.stack(layers).sum(0)  # <- jumping active
        counts = torch.bincount(batch, minlength=GRAPHS)
        return self.head(self.pooled(nodes, batch) / counts[:, None])  # <- readout


def molecules(rng):
    atoms, edges, bonds, batch, offset = [], [], [], [], 0
    for graph in range(GRAPHS):
        size = int(rng.integers(3, 8))
        count = 2 * size
        atoms.append(rng.integers(0, ATOMS, size))
        edges.append(rng.integers(0, size, (2, count)) + offset)
        bonds.append(rng.integers(0, BONDS, count))
        batch.append(np.full(size, graph))
        offset += size
    parts = [np.concatenate(atoms), np.concatenate(edges, 1), np.concatenate(bonds)]
    return [torch.from_numpy(part) for part in (*parts, np.concatenate(batch))]


def loss_of(model, graphs, labels):
    labelled = ~labels.isnan()
    scores = model(*graphs)
    return F.binary_cross_entropy_with_logits(scores[labelled], labels[labelled])  # <- labelled


torch.manual_seed(181)
model = GNN()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
rng = np.random.default_rng(191)
losses = []
for _ in range(3):
    graphs = molecules(rng)
    labels = rng.integers(0, 2, (GRAPHS, TASKS)).astype(np.float32)
    labels[rng.random((GRAPHS, TASKS)) < 0.3] = np.nan
    loss = loss_of(model, graphs, torch.from_numpy(labels))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
model.eval()
with torch.no_grad():
    losses.append(loss_of(model, graphs, torch.from_numpy(labels)).item())
