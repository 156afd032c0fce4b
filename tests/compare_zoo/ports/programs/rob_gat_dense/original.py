# SPDX-License-Identifier: Apache-2.0
"""Graph attention over a sparse edge list (index_add), with a consistency target for the unlabelled nodes."""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)

NODES, FEATURES, CLASSES, STEPS = 40, 12, 4, 5


def make_graph():
    """A directed multigraph: some edges occur twice and count twice."""
    g = torch.Generator().manual_seed(14)
    x = torch.randn(NODES, FEATURES, generator=g)
    edges = torch.randint(0, NODES, (2, 130), generator=g)
    edges = edges[:, edges[0] != edges[1]]
    edges = torch.cat([edges, edges[:, :25]], dim=1)  # <- edges_once
    y = torch.randint(0, CLASSES, (NODES,), generator=g)
    order = torch.randperm(NODES, generator=g)
    train_mask = torch.zeros(NODES, dtype=torch.bool)
    train_mask[order[:16]] = True
    return x, edges, y, train_mask


class GATConv(nn.Module):
    def __init__(self, n_in, n_out, heads, bias=True):
        super().__init__()
        self.heads, self.n_out = heads, n_out
        self.lin = nn.Linear(n_in, heads * n_out, bias=False)
        self.att_src = nn.Parameter(torch.randn(heads, n_out) * 0.5)
        self.att_dst = nn.Parameter(torch.randn(heads, n_out) * 0.5)
        self.bias = nn.Parameter(torch.zeros(heads * n_out)) if bias else None

    def forward(self, x, edge_index):
        n = len(x)
        src, dst = edge_index  # <- edges_reversed
        h = self.lin(x).view(n, self.heads, self.n_out)
        a_src = (h * self.att_src).sum(-1)
        a_dst = (h * self.att_dst).sum(-1)
        e = F.leaky_relu(a_src[src] + a_dst[dst], negative_slope=0.2)  # <- edges_reversed
        top = torch.full((n, self.heads), -torch.inf)
        top = top.scatter_reduce(0, dst[:, None].expand_as(e), e.detach(), "amax")
        w = torch.exp(e - top[dst])
        total = torch.zeros(n, self.heads).index_add(0, dst, w)  # <- edges_once
        alpha = w / total[dst]
        out = torch.zeros_like(h).index_add(0, dst, alpha[..., None] * h[src])  # <- edges_reversed
        return out.flatten(1) if self.bias is None else out.flatten(1) + self.bias


class Net(nn.Module):
    def __init__(self, hidden=8, heads=3):
        super().__init__()
        self.conv1 = GATConv(FEATURES, hidden, heads, bias=False)
        self.norm = nn.BatchNorm1d(hidden * heads, momentum=0.3)  # <- momentum_meaning
        self.conv2 = GATConv(hidden * heads, CLASSES, 1)

    def forward(self, x, edge_index):
        x = F.elu(self.norm(self.conv1(x, edge_index)))  # <- momentum_meaning
        return self.conv2(x, edge_index)


def add_self_loops(edges, n):
    loop = torch.arange(n)
    return torch.cat([edges, torch.stack([loop, loop])], dim=1)


torch.manual_seed(6)
x, edges, y, train_mask = make_graph()
edges = add_self_loops(edges, NODES)
model = Net()
torch.save(model.state_dict(), sys.argv[1])

later = [*model.norm.parameters(), *model.conv2.parameters()]
groups = [{"params": model.conv1.parameters(), "weight_decay": 5e-2}, {"params": later}]  # <- decay_everywhere
optimizer = torch.optim.Adam(groups, lr=0.02, eps=1e-6, weight_decay=0.0)  # <- decay_everywhere

losses = []
for step in range(STEPS):
    model.eval()
    with torch.no_grad():  # <- target_gradient
        sharp = torch.softmax(model(x, edges) / 0.5, dim=-1)  # <- target_gradient
    model.train()
    logits = model(x, edges)
    supervised = F.cross_entropy(logits[train_mask], y[train_mask])
    guess = torch.softmax(logits[~train_mask], dim=-1)
    consistency = (guess - sharp[~train_mask]).pow(2).sum(-1).mean()
    loss = supervised + 0.8 * consistency
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- decay_everywhere
    losses.append(loss.item())
print(losses)
