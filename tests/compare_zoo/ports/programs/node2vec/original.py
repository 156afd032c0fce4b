# SPDX-License-Identifier: Apache-2.0
"""node2vec (Grover and Leskovec 2016): biased random walks, skip-gram with negative samples over
two tables (Mikolov et al. 2013), a rate that falls linearly.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

NODES, DIM, WALKS, LENGTH, WINDOW, NEGATIVES = 30, 16, 4, 10, 2, 5
P, Q, STEPS = 4.0, 0.5, 6


def random_graph(rng):
    upper = np.triu(rng.random((NODES, NODES)) < 0.12, 1)
    for node in range(NODES):
        upper[min(node, (node + 1) % NODES), max(node, (node + 1) % NODES)] = True
    return {node: np.flatnonzero((upper | upper.T)[node]) for node in range(NODES)}


def node2vec_walk(graph, start, rng):
    walk = [start]
    previous = None
    while len(walk) < LENGTH:
        here = walk[-1]
        neighbours = graph[here]
        weights = np.ones(len(neighbours))
        if previous is not None:
            for i, candidate in enumerate(neighbours):
                if candidate == previous:
                    weights[i] = 1 / P  # <- walks
                elif candidate not in graph[previous]:
                    weights[i] = 1 / Q  # <- walks
        walk.append(int(rng.choice(neighbours, p=weights / weights.sum())))  # <- walks
        previous = here
    return walk


def skip_gram_pairs(walk):
    return [
        (walk[i], walk[j])
        for i in range(LENGTH)
        for j in range(max(0, i - WINDOW), min(LENGTH, i + WINDOW + 1))  # <- window
        if i != j
    ]


class SkipGram(nn.Module):
    def __init__(self):
        super().__init__()
        self.in_embed = nn.Embedding(NODES, DIM)
        self.out_embed = nn.Embedding(NODES, DIM)
        nn.init.normal_(self.in_embed.weight, std=0.4)
        nn.init.normal_(self.out_embed.weight, std=0.4)

    def forward(self, center, context, negative):
        v = self.in_embed(center)  # <- walks window mapped
        u = self.out_embed(context)  # <- walks window tables mapped
        u_negative = self.out_embed(negative)  # <- power walks window tables mapped
        positive_score = (v * u).sum(dim=1)
        negative_score = torch.bmm(u_negative, v.unsqueeze(2)).squeeze(2)
        positive_loss = F.logsigmoid(positive_score)
        negative_loss = F.logsigmoid(-negative_score).sum(dim=1)  # <- sign summed
        return -(positive_loss + negative_loss).mean()  # <- summed


rng = np.random.default_rng(17)
graph = random_graph(rng)
torch.manual_seed(6)
model = SkipGram()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / STEPS)  # <- rate
losses = []
for _ in range(3):
    walks = [node2vec_walk(graph, int(start), rng) for start in rng.integers(0, NODES, WALKS)]
    counts = np.bincount(np.concatenate(walks), minlength=NODES)
    noise = counts**0.75 / (counts**0.75).sum()  # <- power
    pairs = np.array([pair for walk in walks for pair in skip_gram_pairs(walk)])  # <- window walks
    negatives = rng.choice(NODES, (len(pairs), NEGATIVES), p=noise)  # <- power
    center, context = torch.from_numpy(pairs).unbind(1)  # <- window walks
    negative = torch.from_numpy(negatives)  # <- power walks window
    optimizer.zero_grad()
    loss = model(center, context, negative)
    loss.backward()
    optimizer.step()  # <- rate
    decay.step()  # <- rate
    losses.append(loss.item())
