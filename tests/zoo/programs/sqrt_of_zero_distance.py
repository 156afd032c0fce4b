# SPDX-License-Identifier: Apache-2.0
"""Triplet loss on Euclidean distances; two identical samples meet in the third batch."""

import torch
from torch import nn


def distance(a, b):
    return ((a - b) ** 2).sum(1).sqrt()  # <- origin


torch.manual_seed(0)
embed = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(embed.parameters(), lr=0.05)
for step in range(5):
    anchor, positive, negative = torch.randn(3, 8, 5)
    if step == 2:
        positive[3] = anchor[3]
    a, p, n = embed(anchor), embed(positive), embed(negative)
    loss = (distance(a, p) - distance(a, n) + 1).relu().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
