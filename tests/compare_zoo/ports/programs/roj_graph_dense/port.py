# SPDX-License-Identifier: Apache-2.0
"""Dense rewrite of the graph network: adjacency matrices, (in, out) weights, penalty in the objective as in TF GCN."""
import sys

import torch
from torch import nn

torch.set_num_threads(1)

N, IN, OUT, HIDDEN, HEADS = 40, 12, 4, 8, 2
L2 = 0.05


class Graph:
    """adj[i, j] is 1 where node i receives from node j."""

    def __init__(self, seed=17):
        rng = torch.Generator().manual_seed(seed)
        self.label = torch.randint(0, OUT, (N,), generator=rng)
        feats = 2.0 * torch.rand(N, IN, generator=rng)
        feats += 2.0 * torch.eye(IN)[self.label]
        feats -= feats.min()
        self.feats = feats / feats.sum(1, keepdim=True).clamp(min=1)
        community = self.label.unsqueeze(0).eq(self.label.unsqueeze(1))
        prob = torch.where(community, 0.2, 0.06)
        sends = (torch.rand(N, N, generator=rng) < prob).float()
        sends = sends * (1 - torch.eye(N))
        self.adj = sends.t().contiguous()  # <- edges_reversed
        self.mask = (torch.rand(N, generator=rng) < 0.4).float()
        self.with_loops = self.adj + torch.eye(N)

    def mean_operator(self):
        return self.adj / self.adj.sum(1, keepdim=True).clamp(min=1)  # <- edges_reversed

    def symmetric_operator(self):
        degree = self.with_loops.sum(1)  # <- degree_without_loops
        inv = torch.where(degree > 0, degree.rsqrt(), torch.zeros(()))
        return inv[:, None] * self.with_loops * inv[None, :]  # <- degree_without_loops


class MeanLayer(nn.Module):
    def __init__(self, sd):
        super().__init__()
        self.neighbour = nn.Parameter(sd["sage.lin_l.weight"].t().contiguous())
        self.own = nn.Parameter(sd["sage.lin_r.weight"].t().contiguous())
        self.bias = nn.Parameter(sd["sage.lin_l.bias"].clone())

    def forward(self, x, mean_op):
        return mean_op @ (x @ self.neighbour) + x @ self.own + self.bias

    def penalty(self):
        return sum(p.square().sum() for p in self.parameters()) / 2  # <- l2_without_half


class AttentionHead(nn.Module):
    def __init__(self, sd, k):
        super().__init__()
        rows = slice(k * HIDDEN, (k + 1) * HIDDEN)
        self.kernel = nn.Parameter(sd["gat.lin.weight"][rows].t().contiguous())
        self.to_me = nn.Parameter(sd["gat.att_dst"][0, k].clone())
        self.from_you = nn.Parameter(sd["gat.att_src"][0, k].clone())
        self.bias = nn.Parameter(sd["gat.bias"][rows].clone())
        self.leaky = nn.LeakyReLU(0.2)  # <- leaky_default_slope

    def forward(self, x, connected):
        h = x @ self.kernel
        logits = self.leaky((h @ self.to_me)[:, None] + (h @ self.from_you)[None, :])  # <- leaky_default_slope
        logits = torch.where(connected > 0, logits, torch.full_like(logits, -1e30))
        return torch.softmax(logits, dim=1) @ h + self.bias


class SpectralLayer(nn.Module):
    def __init__(self, sd):
        super().__init__()
        self.kernel = nn.Parameter(sd["gcn.lin.weight"].t().contiguous())
        self.bias = nn.Parameter(sd["gcn.bias"].clone())

    def forward(self, x, operator):
        return (operator @ x) @ self.kernel + self.bias


class DenseNet(nn.Module):
    def __init__(self, sd):
        super().__init__()
        self.first = MeanLayer(sd)
        self.heads = nn.ModuleList([AttentionHead(sd, k) for k in range(HEADS)])
        self.last = SpectralLayer(sd)

    def forward(self, graph):
        x = self.first(graph.feats, graph.mean_operator()).clamp(min=0)  # <- edges_reversed
        x = torch.cat([nn.functional.elu(head(x, graph.with_loops)) for head in self.heads], dim=1)
        return self.last(x, graph.symmetric_operator())  # <- degree_without_loops


def masked_cross_entropy(logits, labels, mask):
    per_node = nn.functional.cross_entropy(logits, labels, reduction="none")
    mask = mask / mask.mean()  # <- mask_not_rescaled
    return (per_node * mask).mean()  # <- mask_not_rescaled


def fit(path, epochs=5):
    graph = Graph()
    net = DenseNet(torch.load(path))
    adam = torch.optim.Adam(net.parameters(), lr=0.02, eps=1e-5, foreach=False)
    curve = []
    for _ in range(epochs):
        data_term = masked_cross_entropy(net(graph), graph.label, graph.mask)
        objective = data_term + L2 * net.first.penalty()  # <- l2_without_half
        net.zero_grad()
        objective.backward()
        adam.step()
        curve.append(float(data_term.detach()))
    return curve


losses = fit(sys.argv[1])
print(losses)
