# SPDX-License-Identifier: Apache-2.0
"""E(n)-equivariant graph network on an edge list (segment sums), graph-level regression."""

import sys

import torch
from torch import nn


def unsorted_segment_sum(data, segment_ids, num_segments):
    result = data.new_zeros((num_segments, data.size(1)))
    return result.scatter_add_(0, segment_ids.unsqueeze(-1).expand_as(data), data)


def unsorted_segment_mean(data, segment_ids, num_segments):
    index = segment_ids.unsqueeze(-1).expand_as(data)
    result = data.new_zeros((num_segments, data.size(1))).scatter_add_(0, index, data)  # <- mean
    count = data.new_zeros(result.shape).scatter_add_(0, index, torch.ones_like(data))  # <- mean
    return result / count.clamp(min=1)  # <- mean


class E_GCL(nn.Module):
    def __init__(self, nf):
        super().__init__()
        act = nn.SiLU()
        self.edge_mlp = nn.Sequential(nn.Linear(2 * nf + 1, nf), act, nn.Linear(nf, nf), act)
        self.node_mlp = nn.Sequential(nn.Linear(2 * nf, nf), act, nn.Linear(nf, nf))
        self.coord_mlp = nn.Sequential(nn.Linear(nf, nf), act, nn.Linear(nf, 1, bias=False))
        self.att_mlp = nn.Sequential(nn.Linear(nf, 1), nn.Sigmoid())  # <- attention

    def forward(self, h, edge_index, coord):
        row, col = edge_index
        coord_diff = coord[row] - coord[col]
        radial = torch.sum(coord_diff**2, 1, keepdim=True)  # <- radial
        edge = self.edge_mlp(torch.cat([h[row], h[col], radial], dim=1))
        edge = edge * self.att_mlp(edge)  # <- attention
        trans = coord_diff * self.coord_mlp(edge)
        coord = coord + unsorted_segment_mean(trans, row, num_segments=coord.size(0))  # <- mean
        agg = unsorted_segment_sum(edge, row, num_segments=h.size(0))
        h = h + self.node_mlp(torch.cat([h, agg], dim=1))
        return h, coord


class EGNN(nn.Module):
    def __init__(self, in_nf=4, hidden=10, n_layers=2):
        super().__init__()
        self.embedding_in = nn.Linear(in_nf, hidden)
        self.layers = nn.ModuleList([E_GCL(hidden) for _ in range(n_layers)])
        self.node_dec = nn.Linear(hidden, hidden)
        self.graph_dec = nn.Linear(hidden, 1)

    def forward(self, h, x, edges, batch):
        h = self.embedding_in(h)
        for layer in self.layers:
            h, x = layer(h, edges, x)
        h = nn.functional.silu(self.node_dec(h))
        return self.graph_dec(unsorted_segment_sum(h, batch, 3)).squeeze(1)  # <- readout


def edges_of(counts):
    rows, cols, start = [], [], 0
    for n in counts:
        for i in range(n):
            rows += [start + i] * (n - 1)
            cols += [start + j for j in range(n) if j != i]
        start += n
    return torch.tensor([rows, cols])


torch.manual_seed(0)
model = EGNN()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)  # <- schedule
counts = [5, 3, 4]
edges = edges_of(counts)
batch = torch.repeat_interleave(torch.arange(3), torch.tensor(counts))
rng = torch.Generator().manual_seed(5)
losses = []
for step in range(5):
    feats, pos = torch.rand(12, 4, generator=rng), torch.randn(12, 3, generator=rng)
    target = torch.randn(3, generator=rng)
    pred = model(feats, pos, edges, batch)
    loss = nn.functional.l1_loss(pred, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- schedule
    scheduler.step()  # <- schedule
    losses.append(loss.item())
print(losses)
