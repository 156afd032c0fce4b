# SPDX-License-Identifier: Apache-2.0
"""The same recommender with bags as counts times one joint table, pairs from a mask over a Gram
matrix by einsum, the loss on logits and Adagrad written out.
"""

import sys
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

CARDINALITIES, EMBEDDING, DENSE, SAMPLES = [23, 11, 31], 8, 6, 16
FIELDS = len(CARDINALITIES)
STARTS = np.concatenate([[0], np.cumsum(CARDINALITIES)])


class MLP(nn.Module):
    def __init__(self, *widths, last):
        super().__init__()
        shapes = list(pairwise(widths))
        self.kernels = nn.ParameterList(torch.zeros(shape) for shape in shapes)
        self.biases = nn.ParameterList(torch.zeros(shape[1]) for shape in shapes)
        self.last = last

    def forward(self, x):
        depth = len(self.kernels)
        for number, (kernel, bias) in enumerate(zip(self.kernels, self.biases), start=1):
            x = torch.addmm(bias, x, kernel)  # <- bottom
            if number < depth or self.last == "relu":
                x = x.relu()  # <- bottom
        return x


class ClickModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(STARTS[-1], EMBEDDING))
        self.dense_net = MLP(DENSE, 20, EMBEDDING, last="relu")
        crossed = (FIELDS + 1) * FIELDS // 2
        self.over_net = MLP(EMBEDDING + crossed, 24, 12, 1, last="none")

    def pooled(self, counts):
        """The sum of the rows that a sample names, for each field."""
        parts = [
            counts[:, start:end] @ self.table[start:end]  # <- pooling bags
            for start, end in pairwise(STARTS)
        ]
        return torch.stack(parts, dim=1)

    def forward(self, numbers, counts):
        dense = self.dense_net(numbers)
        vectors = torch.cat([dense[:, None], self.pooled(counts)], dim=1)  # <- bottom
        gram = torch.einsum("nid,njd->nij", vectors, vectors)  # <- pairs
        below = torch.ones(FIELDS + 1, FIELDS + 1).tril(-1).bool()  # <- pairs
        crossed = gram[:, below]  # <- pairs
        return self.over_net(torch.cat([dense, crossed], dim=1))[:, 0]


def weights_from(old):
    new = {"table": torch.cat([old[f"emb_l.{i}.weight"] for i in range(FIELDS)])}
    for mine, theirs, depth in (("dense_net", "bot_l", 2), ("over_net", "top_l", 3)):
        for i in range(depth):
            new[f"{mine}.kernels.{i}"] = old[f"{theirs}.{2 * i}.weight"].t()
            new[f"{mine}.biases.{i}"] = old[f"{theirs}.{2 * i}.bias"]
    return new


def count_table(rng):
    """How often each sample names each row of the joint table."""
    table = np.zeros((SAMPLES, STARTS[-1]), dtype=np.float32)
    for start, size in zip(STARTS, CARDINALITIES):
        counts = rng.integers(1, 5, SAMPLES)
        rows = rng.integers(0, size, counts.sum())
        ends = np.cumsum(counts)
        owners = np.searchsorted(ends, np.arange(len(rows)), side="right")  # <- bags
        np.add.at(table, (owners, start + rows), 1.0)  # <- bags
    return table


def read(rng):
    raw = rng.integers(0, 200, (SAMPLES, DENSE))
    numbers = np.log(raw + 1.0).astype(np.float32)  # <- logs
    counts = count_table(rng)
    clicked = rng.integers(0, 2, (SAMPLES, 1))[:, 0].astype(np.float32)
    return torch.tensor(numbers), torch.tensor(counts), torch.tensor(clicked)  # <- logs


def adagrad(parameters, sums, rate=0.02):
    for p, total in zip(parameters, sums):
        total.addcmul_(p.grad, p.grad)  # <- accumulator
        p.data.sub_(rate * p.grad / (total.sqrt() + 1e-10))  # <- accumulator
        p.grad = None


net = ClickModel()
net.load_state_dict(weights_from(torch.load(sys.argv[1])))
parameters = list(net.parameters())
sums = [torch.full_like(p, 0.0) for p in parameters]  # <- accumulator
generator = np.random.default_rng(8)
losses = []
for _ in range(3):
    numbers, counts, clicked = read(generator)
    logits = net(numbers, counts)
    surprise = F.softplus(logits) - clicked * logits  # <- sigmoid
    loss = surprise.mean()
    loss.backward()
    adagrad(parameters, sums)
    losses.append(loss.item())
