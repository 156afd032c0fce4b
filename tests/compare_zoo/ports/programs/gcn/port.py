# SPDX-License-Identifier: Apache-2.0
"""The same graph network with a dense adjacency: products of matrices for messages, a mask for
attention, Adam written out with the decay in the gradient.
"""

import sys

import numpy as np
import torch
from torch import nn

N, IN, MID, OUT, K = 24, 10, 12, 4, 2


class GraphConvolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(IN, MID))
        self.shift = nn.Parameter(torch.zeros(MID))

    def forward(self, features, adjacency):
        scale = torch.diag(adjacency.sum(1).rsqrt())  # <- normalised
        operator = scale @ adjacency @ scale  # <- normalised direction loops
        return operator @ (features @ self.weight) + self.shift  # <- direction normalised loops


class GraphAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(K, MID, OUT))
        self.sender = nn.Parameter(torch.zeros(K, OUT))
        self.receiver = nn.Parameter(torch.zeros(K, OUT))

    def forward(self, features, adjacency):
        h = torch.einsum("ni,kio->kno", features, self.weight)
        sent = torch.einsum("kno,ko->kn", h, self.sender)
        received = torch.einsum("kno,ko->kn", h, self.receiver)
        e = received[:, :, None] + sent[:, None, :]
        e = torch.maximum(e, 0.2 * e)  # <- slope
        e = e.masked_fill(adjacency == 0, -1e9)
        weights = torch.softmax(e, dim=2)  # <- over
        return (weights @ h).mean(0)  # <- heads


class GraphNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.attention = GraphConvolution(), GraphAttention()

    def forward(self, features, adjacency):
        h = self.convolution(features, adjacency)
        h = torch.where(h > 0, h, torch.expm1(h))
        return self.attention(h, adjacency)


def adjacency_of(edges):
    adjacency = torch.zeros(N, N)
    adjacency[edges % N, edges // N] = 1.0  # <- direction
    return adjacency + torch.eye(N)  # <- loops


def weights_of(old):
    return {
        "convolution.weight": old["conv1.lin.weight"].T,
        "convolution.shift": old["conv1.bias"],
        "attention.weight": old["conv2.lin.weight"].view(K, OUT, MID).mT,
        "attention.sender": old["conv2.att_src"][0],
        "attention.receiver": old["conv2.att_dst"][0],
    }


rng = np.random.default_rng(1)
edges = rng.permutation(N * N)[:90]
adjacency = adjacency_of(edges[edges // N != edges % N])
features = torch.tensor(rng.standard_normal((N, IN), dtype=np.float32))
labels = torch.tensor(rng.integers(0, OUT, N))
known = torch.tensor(rng.random(N) < 0.6)
net = GraphNetwork()
net.load_state_dict(weights_of(torch.load(sys.argv[1])))
moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in net.parameters()]
losses = []
for step in (1, 2, 3):
    scores = net(features, adjacency)
    each = nn.functional.cross_entropy(scores, labels, reduction="none")
    loss = (each * known).sum() / known.sum()  # <- masked
    gradients = torch.autograd.grad(loss, list(net.parameters()))
    with torch.no_grad():
        for p, (m, v), g in zip(net.parameters(), moments, gradients):
            slope = g + 5e-4 * p  # <- decay
            m.lerp_(slope, 0.1)
            v.lerp_(slope * slope, 0.001)
            root = (v / (1 - 0.999**step)).sqrt() + 1e-8
            p.sub_(0.01 / (1 - 0.9**step) * m / root)  # <- decay
    losses.append(loss.item())
