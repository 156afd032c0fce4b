# SPDX-License-Identifier: Apache-2.0
"""GINE graph regression with edge types: edge_index batches, scatter sums, batch norm, jumping knowledge."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(71)

NODE_TYPES, EDGE_TYPES, DIM, LAYERS = 6, 3, 12, 3


class GINEConv(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.edge_encoder = nn.Embedding(EDGE_TYPES, dim)
        self.eps = nn.Parameter(torch.zeros(1))
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.BatchNorm1d(2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))

    def forward(self, x, edge_index, edge_type):
        src, dst = edge_index
        msg = F.relu(x[src] + self.edge_encoder(edge_type))
        agg = torch.zeros_like(x).index_add(0, dst, msg)
        return self.mlp((1 + self.eps) * x + agg)


class GIN(nn.Module):
    def __init__(self):
        super().__init__()
        self.node_encoder = nn.Embedding(NODE_TYPES, DIM)
        self.convs = nn.ModuleList(GINEConv(DIM) for _ in range(LAYERS))
        self.norms = nn.ModuleList(nn.BatchNorm1d(DIM) for _ in range(LAYERS))
        self.pred = nn.ModuleList(nn.Linear(DIM, 1) for _ in range(LAYERS + 1))

    def forward(self, data):
        x = self.node_encoder(data["x"])
        out = self.readout(0, x, data)
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms)):
            h = norm(conv(x, data["edge_index"], data["edge_type"]))
            x = x + (F.relu(h) if i < LAYERS - 1 else h)
            out = out + self.readout(i + 1, x, data)
        return out.squeeze(-1)

    def readout(self, i, x, data):
        n = data["num_graphs"]
        pooled = torch.zeros(n, DIM).index_add(0, data["batch"], x)
        count = torch.bincount(data["batch"], minlength=n).unsqueeze(1)
        return self.pred[i](pooled / count)


def random_graph(gen):
    n = int(torch.randint(4, 10, (1,), generator=gen))
    x = torch.randint(0, NODE_TYPES, (n,), generator=gen)
    pairs = torch.combinations(torch.arange(n))
    pairs = pairs[torch.rand(len(pairs), generator=gen) < 0.4]
    et = torch.randint(0, EDGE_TYPES, (len(pairs),), generator=gen)
    y = 0.1 * x.float().sum() - 0.2 * len(pairs) + 0.1 * (et == 1).sum()
    return x, torch.cat([pairs, pairs.flip(1)]).t(), torch.cat([et, et]), y


def collate(graphs):
    offset, xs, eis, ets, bs, ys = 0, [], [], [], [], []
    for i, (x, ei, et, y) in enumerate(graphs):
        xs.append(x), eis.append(ei + offset), ets.append(et), ys.append(y)
        bs.append(torch.full((len(x),), i))
        offset += len(x)
    return {"x": torch.cat(xs), "edge_index": torch.cat(eis, 1), "edge_type": torch.cat(ets), "batch": torch.cat(bs),
            "y": torch.stack(ys), "num_graphs": len(graphs)}


model = GIN()
torch.save(model.state_dict(), sys.argv[1])
gen = torch.Generator().manual_seed(710)
dataset = [random_graph(gen) for _ in range(30)]
loader = torch.utils.data.DataLoader(dataset, batch_size=6, collate_fn=collate)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
losses = []
model.train()
for data in loader:
    optimizer.zero_grad()
    loss = F.l1_loss(model(data), data["y"])
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(losses)
