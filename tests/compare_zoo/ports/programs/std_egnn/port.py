# SPDX-License-Identifier: Apache-2.0
"""EGNN on padded dense molecules: all pairs at once, (batch, i, j, feature) tensors and a mask."""

import math
import sys

import torch
from torch.nn.functional import linear, silu

weights = torch.load(sys.argv[1], weights_only=True)
for tensor in weights.values():
    tensor.requires_grad_(True)


def dense(name, x):
    return linear(x, weights[name + ".weight"], weights.get(name + ".bias"))


class Layer:
    def __init__(self, number):
        self.p = f"layers.{number}."
        w = weights[self.p + "edge_mlp.0.weight"]
        self.split = lambda: (w[:, :10], w[:, 10:20], w[:, 20])

    def message(self, h, dist2):
        receiver, sender, radius = self.split()
        first = (h @ receiver.T)[:, :, None] + (h @ sender.T)[:, None, :]
        first = first + dist2[..., None] * radius + weights[self.p + "edge_mlp.0.bias"]
        m = silu(dense(self.p + "edge_mlp.2", silu(first)))
        return m * dense(self.p + "att_mlp.0", m).sigmoid()  # <- attention

    def __call__(self, h, x, pair):
        rel = x[:, :, None] - x[:, None, :]
        dist2 = rel.square().sum(-1)  # <- radial
        m = self.message(h, dist2) * pair[..., None]
        push = dense(self.p + "coord_mlp.2", silu(dense(self.p + "coord_mlp.0", m)))
        degree = pair.sum(2).clamp(min=1)  # <- mean
        x = x + (rel * push * pair[..., None]).sum(2) / degree[..., None]  # <- mean
        both = torch.cat([h, m.sum(2)], -1)
        h = h + dense(self.p + "node_mlp.2", silu(dense(self.p + "node_mlp.0", both)))
        return h, x


stack = [Layer(0), Layer(1)]


def energy(feats, pos, alive):
    pair = alive[:, :, None] * alive[:, None, :] * (1 - torch.eye(5))
    h, x = dense("embedding_in", feats), pos
    for layer in stack:
        h, x = layer(h, x, pair)
    atoms = silu(dense("node_dec", h)) * alive[..., None]  # <- readout
    return dense("graph_dec", atoms.sum(1))[:, 0]  # <- readout


def pad(flat, sizes=(5, 3, 4)):
    return torch.nn.utils.rnn.pad_sequence(flat.split(list(sizes)), batch_first=True)


avg = {k: [torch.zeros_like(v), torch.zeros_like(v)] for k, v in weights.items()}


@torch.no_grad()
def adam(step):
    rate = 2e-3 * 0.5 * (1 + math.cos(math.pi * (step - 1) / 6))  # <- schedule
    for k, p in weights.items():
        if p.grad is None:
            continue
        first, second = avg[k]
        first.mul_(0.9).add_(p.grad, alpha=0.1)
        second.mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
        scale = math.sqrt(1 - 0.999**step)
        p.sub_(rate / (1 - 0.9**step) * first / (second.sqrt() / scale + 1e-8))  # <- schedule
        p.grad = None


g = torch.Generator().manual_seed(5)
losses = []
for step in range(1, 6):
    f, r = torch.rand(12, 4, generator=g), torch.randn(12, 3, generator=g)
    y = torch.randn(3, generator=g)
    alive = pad(torch.ones(12))
    loss = (energy(pad(f), pad(r), alive) - y).abs().mean()
    loss.backward()
    adam(step)  # <- schedule
    losses.append(loss.item())
print(losses)
