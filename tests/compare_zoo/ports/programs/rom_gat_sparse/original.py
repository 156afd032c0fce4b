# SPDX-License-Identifier: Apache-2.0
"""Node classification on a dense adjacency: a GCN layer, batch norm, a multi-head GAT layer and a GAT output."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

N, E, FEATS, HIDDEN, HEADS, CLASSES, STEPS = 36, 110, 12, 8, 2, 4, 5


class GraphConvolution(nn.Module):
    """D^-1/2 (A + I) D^-1/2 X W (the batch norm after it has the bias)."""

    def __init__(self, nin, nout):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(nin, nout))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x, adj_norm):
        return adj_norm @ (x @ self.weight)  # <- degree_no_loops


class GraphAttention(nn.Module):
    """One attention head over the dense mask, as in pyGAT."""

    def __init__(self, nin, nout, alpha=0.2):
        super().__init__()
        self.W = nn.Parameter(torch.empty(nin, nout))
        self.a = nn.Parameter(torch.empty(2 * nout, 1))
        nn.init.xavier_uniform_(self.W, gain=1.414)
        nn.init.xavier_uniform_(self.a, gain=1.414)
        self.leakyrelu = nn.LeakyReLU(alpha)  # <- leaky_default

    def forward(self, x, adj):
        h = x @ self.W
        n = self.W.shape[1]
        e = (h @ self.a[:n]) + (h @ self.a[n:]).T  # e[i, j]: node i receives from node j
        e = self.leakyrelu(e)  # <- leaky_default
        e = torch.where(adj > 0, e, torch.full_like(e, -9e15))
        return torch.softmax(e, dim=1) @ h


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gcn = GraphConvolution(FEATS, HIDDEN)
        self.bn = nn.BatchNorm1d(HIDDEN, momentum=0.3)  # <- running_biased
        self.heads = nn.ModuleList([GraphAttention(HIDDEN, HIDDEN) for _ in range(HEADS)])
        self.out_att = GraphAttention(HEADS * HIDDEN, CLASSES)

    def forward(self, x, adj, adj_norm):
        x = self.gcn(x, adj_norm)
        x = F.relu(self.bn(x))  # <- running_biased
        x = torch.cat([F.elu(head(x, adj)) for head in self.heads], dim=1)
        return F.log_softmax(self.out_att(x, adj), dim=1)


def load_graph():
    g = torch.Generator().manual_seed(31)
    src = torch.randint(0, N, (E,), generator=g)
    dst = torch.randint(0, N, (E,), generator=g)
    features = torch.randn(N, FEATS, generator=g)
    labels = torch.randint(0, CLASSES, (N,), generator=g)
    idx = torch.randperm(N, generator=g)
    adj = torch.zeros(N, N)
    adj[dst, src] = 1.0
    adj = torch.maximum(adj, torch.eye(N))
    return features, labels, adj, idx[:20], idx[20:]


def normalize(adj):
    deg = adj.sum(1)  # <- degree_no_loops
    d = deg.pow(-0.5)
    return d[:, None] * adj * d[None, :]  # <- degree_no_loops


torch.manual_seed(2)
model = Net()
torch.save(model.state_dict(), sys.argv[1])
features, labels, adj, idx_train, idx_val = load_graph()
adj_norm = normalize(adj)  # <- degree_no_loops

# Kipf: L2 on the first layer only
rest = [p for n, p in model.named_parameters() if not n.startswith("gcn")]
groups = [{"params": model.gcn.parameters(), "weight_decay": 0.02}, {"params": rest, "weight_decay": 0.0}]  # <- l2_everywhere
optimizer = torch.optim.Adam(groups, lr=0.01, eps=1e-5)  # <- l2_everywhere

losses = []
for epoch in range(STEPS):
    model.train()
    optimizer.zero_grad()
    output = model(features, adj, adj_norm)
    loss = F.nll_loss(output[idx_train], labels[idx_train])  # <- mask_ignored
    loss.backward()
    optimizer.step()  # <- l2_everywhere
    losses.append(loss.item())

model.eval()
with torch.no_grad():
    output = model(features, adj, adj_norm)  # <- running_biased
    losses.append(F.nll_loss(output[idx_val], labels[idx_val]).item())
print(losses)
