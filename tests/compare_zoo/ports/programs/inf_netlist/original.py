# SPDX-License-Identifier: Apache-2.0
"""Arrival-time prediction for logic netlists: attention from the drivers of each cell, one circuit
at a time on dense adjacency matrices."""
import sys

import torch
import torch.nn.functional as F
from torch import nn

KINDS, DIM, HEADS, EDGE = 7, 24, 3, 3


class FanInAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.source = nn.Linear(DIM, DIM)
        self.target = nn.Linear(DIM, DIM)
        self.wire = nn.Linear(EDGE, DIM, bias=False)
        self.score = nn.Parameter(torch.randn(HEADS, DIM // HEADS))
        self.mix = nn.Linear(2 * DIM, DIM)
        self.norm = nn.LayerNorm(DIM)

    def forward(self, x, adjacency, wires):
        """adjacency[i, j]: cell j drives cell i; wires[i, j]: features of that wire."""
        n = len(x)
        src = self.source(x)  # <- direction
        pair = self.target(x)[:, None] + src[None] + self.wire(wires)  # <- direction
        pair = pair.view(n, n, HEADS, -1)
        energy = (F.leaky_relu(pair, 0.2) * self.score).sum(-1)  # <- slope
        energy = energy.masked_fill(~adjacency[..., None], -1e9)  # <- normalise
        weight = energy.softmax(dim=1) * adjacency[..., None]  # <- normalise
        agg = torch.einsum("ijh,jhd->ihd", weight, src.view(n, HEADS, -1))  # <- direction
        fan = adjacency.sum(1, keepdim=True).float()
        agg = agg.flatten(1) * torch.log1p(fan)  # <- fanin
        return self.norm(x + F.relu(self.mix(torch.cat([x, agg], dim=1))))


class TimingNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.kind = nn.Embedding(KINDS, DIM)
        self.load = nn.Linear(2, DIM)
        self.layers = nn.ModuleList(FanInAttention() for _ in range(3))
        self.local = nn.Linear(DIM, DIM)
        self.out = nn.Linear(2 * DIM, 2)

    def forward(self, kind, load, adjacency, wires):
        x = self.kind(kind) + self.load(load)
        for layer in self.layers:
            x = layer(x, adjacency, wires)
        y = F.silu(self.local(x))
        summary = torch.cat([y.mean(0), y.max(0).values])  # <- readout
        return self.out(summary)


def circuit(gen):
    n = int(torch.randint(6, 15, (1,), generator=gen))
    kind = torch.randint(0, KINDS, (n,), generator=gen)
    load = torch.rand(n, 2, generator=gen) * 2
    pairs = torch.rand(n, n, generator=gen) < 0.35
    features = torch.randn(n, n, EDGE, generator=gen)
    truth = torch.randn(2, generator=gen)
    return kind, load, pairs.tril(-1), features, truth


torch.manual_seed(0)
model = TimingNet().eval()
with torch.no_grad():
    for name, p in model.named_parameters():
        if p.dim() == 2 and "kind" not in name and "score" not in name:
            p.normal_(0, 1.2 / p.shape[1] ** 0.5)
        elif p.dim() == 1:
            p.add_(0.3 * torch.randn_like(p))
torch.save(model.state_dict(), sys.argv[1])

gen = torch.Generator().manual_seed(17)
losses = []
with torch.no_grad():
    for _ in range(4):
        errors = []
        for _ in range(5):
            kind, load, adjacency, features, truth = circuit(gen)
            errors.append(F.huber_loss(model(kind, load, adjacency, features), truth))
        losses.append(torch.stack(errors).mean().item())
print(losses)
