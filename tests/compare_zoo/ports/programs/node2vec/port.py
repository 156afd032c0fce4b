# SPDX-License-Identifier: Apache-2.0
"""The same embedding as a class of two matrices whose columns are nodes: an adjacency matrix to
walk on, one array of positive and negative targets with labels, a rate by hand.
"""

import sys

import numpy as np
import torch

V, D, N_WALKS, WALK, AROUND, NOISE = 30, 16, 4, 10, 2, 5
RETURN, INOUT = 4.0, 0.5


def connect(rng):
    linked = np.triu(rng.random((V, V)) < 0.12, 1)
    linked |= linked.T
    ring = np.arange(V)
    linked[ring, (ring + 1) % V] = linked[(ring + 1) % V, ring] = True
    return linked


def walk_from(linked, node, rng):
    path = np.empty(WALK, dtype=np.int64)
    path[0] = node
    for t in range(1, WALK):
        now = path[t - 1]
        chance = linked[now].astype(float)
        if t > 1:
            before = path[t - 2]
            chance *= np.where(linked[before], 1.0, 1 / INOUT)  # <- walks
            chance[before] = 1 / RETURN  # <- walks
        ladder = np.cumsum(chance / chance.sum())
        path[t] = np.searchsorted(ladder / ladder[-1], rng.random(), side="right")  # <- walks
    return path


def pairs_of(path):
    offsets = np.delete(np.arange(-AROUND, AROUND + 1), AROUND)  # <- window
    there = np.arange(WALK)[:, None] + offsets
    inside = (there >= 0) & (there < WALK)
    here = np.broadcast_to(np.arange(WALK)[:, None], there.shape)
    return path[here[inside]], path[there[inside]]


class TwoTables:
    def __init__(self, saved):
        old = torch.load(saved)
        self.nodes = old["in_embed.weight"].T.clone().requires_grad_()  # <- mapped
        self.contexts = old["out_embed.weight"].T.clone().requires_grad_()  # <- mapped

    def loss(self, nodes, targets, labels):
        own = self.nodes[:, nodes]  # <- mapped
        other = self.contexts[:, targets]  # <- tables mapped power walks window
        logits = torch.einsum("dp,dpk->pk", own, other)
        surprise = torch.nn.functional.softplus(-labels * logits)  # <- sign
        return surprise.sum() / len(nodes)  # <- summed

    def learn(self, loss, rate):
        both = (self.nodes, self.contexts)
        slopes = torch.autograd.grad(loss, both, materialize_grads=True)
        for table, slope in zip(both, slopes):
            table.data -= rate * slope  # <- rate


generator = np.random.default_rng(17)
linked = connect(generator)
tables = TwoTables(sys.argv[1])
losses = []
for step in range(3):
    starts = generator.integers(0, V, N_WALKS)
    paths = np.stack([walk_from(linked, start, generator) for start in starts])
    nodes, contexts = (np.concatenate(part) for part in zip(*map(pairs_of, paths)))
    seen = np.bincount(paths.ravel(), minlength=V).astype(float)
    unigram = seen**0.75  # <- power
    unigram /= unigram.sum()
    noise = generator.choice(V, (len(nodes), NOISE), p=unigram)  # <- power
    targets = np.concatenate([contexts[:, None], noise], axis=1)
    nodes = torch.as_tensor(nodes)  # <- walks window
    targets = torch.as_tensor(targets)  # <- walks window power
    labels = torch.tensor([1.0] + [-1.0] * NOISE)  # <- sign
    loss = tables.loss(nodes, targets, labels)
    rate = 2.0 * (1 - step / 6)  # <- rate
    tables.learn(loss, rate)
    losses.append(loss.item())
