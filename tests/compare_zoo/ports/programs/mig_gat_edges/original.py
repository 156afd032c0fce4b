# SPDX-License-Identifier: Apache-2.0
"""A graph attention network as the first repositories had it: a class a head, dense adjacency."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

NODES, FEATURES, HIDDEN, HEADS, CLASSES = 24, 10, 6, 3, 4


class GraphAttentionLayer(nn.Module):
    def __init__(self, fin, fout, concat):
        super().__init__()
        self.concat = concat
        self.W = nn.Parameter(torch.empty(fin, fout))
        self.a = nn.Parameter(torch.empty(2 * fout, 1))
        nn.init.xavier_uniform_(self.W, gain=1.414)
        nn.init.xavier_uniform_(self.a, gain=1.414)
        self.bias = nn.Parameter(0.1 * torch.randn(fout))

    def forward(self, x, adj):
        h = x @ self.W
        size = len(h)
        pairs = torch.cat([h.repeat_interleave(size, 0), h.repeat(size, 1)], dim=1)
        e = F.leaky_relu(pairs @ self.a, 0.2).view(size, size)  # <- direction slope
        attention = e.masked_fill(adj == 0, -9e15)  # <- loops
        attention = F.softmax(attention, dim=1)  # <- direction loops
        out = attention @ h + self.bias  # <- direction loops
        return F.elu(out) if self.concat else out


class GAT(nn.Module):
    def __init__(self):
        super().__init__()
        self.attentions = nn.ModuleList(
            GraphAttentionLayer(FEATURES, HIDDEN, concat=True) for _ in range(HEADS)
        )
        self.out_att = GraphAttentionLayer(HEADS * HIDDEN, CLASSES, concat=False)
        self.norm = nn.LayerNorm(HEADS * HIDDEN)

    def forward(self, x, adj):
        x = torch.cat([head(x, adj) for head in self.attentions], dim=1)
        return F.log_softmax(self.out_att(self.norm(x), adj), dim=1)


def graph():
    generator = torch.Generator().manual_seed(132)
    adj = (torch.rand(NODES, NODES, generator=generator) < 0.15).float()  # adj[i, j]: i hears j
    adj.fill_diagonal_(1.0)  # <- loops
    x = torch.rand(NODES, FEATURES, generator=generator)
    x = x / x.sum(1, keepdim=True)  # <- rows
    y = torch.randint(CLASSES, (NODES,), generator=generator)
    chosen = torch.rand(NODES, generator=generator) < 0.5
    return x, adj, y, chosen


torch.manual_seed(131)
model = GAT()
torch.save(model.state_dict(), sys.argv[1])
x, adj, y, chosen = graph()
optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-3, eps=1e-4)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.7)
losses = []
for epoch in range(5):
    model.train()
    optimizer.zero_grad()
    loss = F.nll_loss(model(x, adj)[chosen], y[chosen])
    loss.backward()
    optimizer.step()  # <- rate
    scheduler.step()  # <- rate
    losses.append(loss.item())
