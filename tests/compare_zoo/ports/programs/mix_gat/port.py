# SPDX-License-Identifier: Apache-2.0
"""Graph attention on a dense adjacency matrix, heads leading, attention vectors folded in."""

import sys

import torch

NODES, NEG = 24, -1e30


class DenseAttention:
    def __init__(self, sd, name, merge):
        a_src, a_dst = sd[name + ".att_src"][0], sd[name + ".att_dst"][0]
        heads, width = a_src.shape
        self.w = sd[name + ".lin.weight"].view(heads, width, -1).transpose(1, 2).clone()
        self.a = torch.stack([a_src, a_dst], -1).clone()
        self.b = sd[name + ".bias"].clone()
        self.merge = merge
        for t in self.params():
            t.requires_grad_(True)

    def params(self):
        return [self.w, self.a, self.b]

    def __call__(self, feats, linked):
        h = feats @ self.w
        sent, received = (h @ self.a).unbind(-1)
        e = received.unsqueeze(2) + sent.unsqueeze(1)
        e = torch.where(e > 0, e, 0.2 * e)  # <- leak_slope
        e = e.masked_fill(~linked, NEG)
        att = torch.softmax(e, dim=2)  # <- neighbour_axis
        return self.merge(att @ h) + self.b


def side_by_side(h):
    return h.permute(1, 0, 2).reshape(h.shape[1], -1)


def averaged(h):
    return h.mean(0)


def elu(t):
    return torch.where(t > 0, t, torch.expm1(t.clamp(max=0)))


class Adam:
    def __init__(self, groups, lr, b1=0.9, b2=0.999, eps=1e-8):
        self.cfg = lr, b1, b2, eps
        self.slots = [
            [p, l2, torch.zeros_like(p), torch.zeros_like(p)]
            for params, l2 in groups
            for p in params
        ]
        self.n = 0

    @torch.no_grad()
    def apply(self, loss):
        lr, b1, b2, eps = self.cfg
        self.n += 1
        grads = torch.autograd.grad(loss, [s[0] for s in self.slots])
        for (p, l2, m, v), g in zip(self.slots, grads):
            g = g + l2 * p  # <- decay_group
            m.copy_(b1 * m + (1 - b1) * g)
            v.copy_(b2 * v + (1 - b2) * g**2)
            denom = (v / (1 - b2**self.n)).sqrt() + eps
            p -= lr * (m / (1 - b1**self.n)) / denom


weights = torch.load(sys.argv[1], weights_only=True)
first = DenseAttention(weights, "conv1", side_by_side)
second = DenseAttention(weights, "conv2", averaged)

rng = torch.Generator().manual_seed(31)
sends_to = torch.rand(NODES, NODES, generator=rng) < 0.15
feats = torch.randn(NODES, 10, generator=rng)
label = torch.randint(0, 4, (NODES,), generator=rng)
known = (torch.rand(NODES, generator=rng) < 0.5).float()

linked = sends_to.T | torch.eye(NODES, dtype=torch.bool)  # <- self_loops
size = feats.abs().sum(dim=1, keepdim=True)  # <- feature_norm
feats = feats / torch.maximum(size, torch.ones(()))  # <- feature_norm
onehot = torch.nn.functional.one_hot(label, 4).float()

opt = Adam([(first.params(), 5e-2), (second.params(), 0.0)], lr=0.02)  # <- decay_group
losses = []
for _ in range(5):
    score = second(elu(first(feats, linked)), linked)
    each = torch.logsumexp(score, 1) - (score * onehot).sum(1)
    loss = (each * known).sum() / known.sum()
    opt.apply(loss)
    losses.append(loss.item())
print(losses)
