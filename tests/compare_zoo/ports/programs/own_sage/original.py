# SPDX-License-Identifier: Apache-2.0
"""GraphSAGE on a citation-like graph, as with a list of edges: messages gathered and scattered,
mean and max of the neighbours, three splits of nodes, AdamW with a cosine schedule.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

NODES, FEATURES, HIDDEN, CLASSES, EDGES, STEPS = 24, 12, 10, 4, 50, 4


class SAGEConv(nn.Module):
    def __init__(self, in_channels, out_channels, aggr):
        super().__init__()
        self.aggr = aggr
        self.lin_l = nn.Linear(in_channels, out_channels)  # <- crossed
        self.lin_r = nn.Linear(in_channels, out_channels, bias=False)  # <- crossed

    def forward(self, x, edge_index):
        source, target = edge_index  # <- direction
        messages = x.index_select(0, source)  # <- direction
        index = target.unsqueeze(1).expand_as(messages)  # <- direction
        blank = torch.zeros_like(x)
        gathered = blank.scatter_reduce(
            0, index, messages, "amax" if self.aggr == "max" else "mean", include_self=False
        )  # <- direction lonely
        return self.lin_l(gathered) + self.lin_r(x)  # <- crossed


class GraphSAGE(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(
            [SAGEConv(FEATURES, HIDDEN, "mean"), SAGEConv(HIDDEN, HIDDEN, "max")]
        )
        self.norms = nn.ModuleList([nn.BatchNorm1d(HIDDEN) for _ in range(2)])
        self.lin = nn.Linear(2 * HIDDEN, CLASSES)

    def forward(self, x, edge_index):
        layers = []
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.relu(norm(F.normalize(conv(x, edge_index), dim=-1)))
            layers.append(x)
        return self.lin(torch.cat(layers, dim=-1))


def citations():
    generator = torch.Generator().manual_seed(82)
    x = torch.randint(0, 3, (NODES, FEATURES), generator=generator).float()
    x = x / x.sum(1, keepdim=True).clamp(min=1)
    y = torch.randint(CLASSES, (NODES,), generator=generator)
    later = torch.randint(1, NODES, (EDGES,), generator=generator)
    earlier = (torch.rand(EDGES, generator=generator) * later).long()
    train = torch.rand(NODES, generator=generator) < 0.6
    return x, y, torch.stack((later, earlier)), train


x, y, edge_index, train_mask = citations()
torch.manual_seed(81)
model = GraphSAGE()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, eps=1e-3, weight_decay=0.1)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS)  # <- annealed
losses = []
for _ in range(STEPS):
    model.train()
    logits = model(x, edge_index)
    loss = F.cross_entropy(logits[train_mask], y[train_mask])  # <- leaked
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- annealed
    scheduler.step()  # <- annealed
    losses.append(loss.item())
