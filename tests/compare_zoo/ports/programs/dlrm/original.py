# SPDX-License-Identifier: Apache-2.0
"""A small DLRM as Naumov et al. (2019) have it: embedding bags for categories, a bottom MLP for
numbers, dot products of all pairs, a top MLP that ends in a sigmoid, Adagrad.
"""

import sys
from itertools import pairwise

import numpy as np
import torch
from torch import nn

TABLES, SPARSE, NUMBERS, BATCH = (23, 11, 31), 8, 6, 16
BOTTOM, TOP = (NUMBERS, 20, SPARSE), (SPARSE + 6, 24, 12, 1)


def create_mlp(sizes, sigmoid_layer):
    layers = []
    for i, (n, m) in enumerate(pairwise(sizes)):
        linear = nn.Linear(n, m)
        nn.init.normal_(linear.weight, std=np.sqrt(2 / (m + n)))
        nn.init.normal_(linear.bias, std=np.sqrt(1 / m))
        layers += [linear, nn.Sigmoid() if i == sigmoid_layer else nn.ReLU()]
    return nn.Sequential(*layers)


class DLRM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb_l = nn.ModuleList()
        for n in TABLES:
            table = nn.EmbeddingBag(n, SPARSE, mode="sum")
            nn.init.uniform_(table.weight, -np.sqrt(1 / n), np.sqrt(1 / n))
            self.emb_l.append(table)
        self.bot_l = create_mlp(BOTTOM, sigmoid_layer=-1)
        self.top_l = create_mlp(TOP, sigmoid_layer=len(TOP) - 2)

    def apply_mlp(self, x, layers):
        for layer in layers:
            x = layer(x)  # <- bottom sigmoid logs
        return x

    def apply_emb(self, offsets, indices):
        return [
            table(index, offset)  # <- pooling bags
            for table, index, offset in zip(self.emb_l, indices, offsets)
        ]

    def interact_features(self, x, ly):
        batch, d = x.shape
        t = torch.cat([x, *ly], dim=1).view(batch, -1, d)  # <- bottom
        z = torch.bmm(t, t.transpose(1, 2))  # <- pairs
        _, ni, nj = z.shape
        li = torch.tensor([i for i in range(ni) for j in range(i)])
        lj = torch.tensor([j for i in range(nj) for j in range(i)])
        flat = z[:, li, lj]  # <- pairs
        return torch.cat([x, flat], dim=1)

    def forward(self, dense_x, offsets, indices):
        x = self.apply_mlp(dense_x, self.bot_l)
        z = self.interact_features(x, self.apply_emb(offsets, indices))
        return self.apply_mlp(z, self.top_l)


def make_batch(rng):
    dense = np.log1p(rng.integers(0, 200, (BATCH, NUMBERS))).astype(np.float32)  # <- logs
    offsets, indices = [], []
    for size in TABLES:
        counts = rng.integers(1, 5, BATCH)
        offsets.append(torch.from_numpy(np.cumsum(counts) - counts))  # <- bags
        indices.append(torch.from_numpy(rng.integers(0, size, counts.sum())))
    clicks = rng.integers(0, 2, (BATCH, 1)).astype(np.float32)
    return torch.from_numpy(dense), offsets, indices, torch.from_numpy(clicks)


np_rng = np.random.default_rng(8)
torch.manual_seed(8)
dlrm = DLRM()
torch.save(dlrm.state_dict(), sys.argv[1])
loss_fn = nn.BCELoss(reduction="mean")
optimizer = torch.optim.Adagrad(dlrm.parameters(), lr=0.02)
losses = []
for _ in range(3):
    dense, offsets, indices, clicks = make_batch(np_rng)
    loss = loss_fn(dlrm(dense, offsets, indices), clicks)  # <- sigmoid
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- accumulator
    losses.append(loss.item())
