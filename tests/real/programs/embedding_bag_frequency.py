# SPDX-License-Identifier: Apache-2.0
"""Bags whose gradient is divided by frequency (pytorch issue 190063: by that of another word)."""

import torch
from torch import nn

torch.manual_seed(0)
bags = nn.EmbeddingBag(20, 6, mode="sum", scale_grad_by_freq=True)
optimizer = torch.optim.SGD(bags.parameters(), lr=0.05)
words, offsets = torch.tensor([1, 1, 1, 3, 7, 7, 9, 11]), torch.tensor([0, 3, 6])
for _ in range(3):
    optimizer.zero_grad()
    loss = (bags(words, offsets) - 1).square().mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
