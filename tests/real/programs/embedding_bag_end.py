# SPDX-License-Identifier: Apache-2.0
"""Bags whose last offset ends before the indices do (pytorch issue 191965: the mean counts what its
sum leaves out).
"""

import torch
from torch import nn

torch.manual_seed(0)
bags = nn.EmbeddingBag(20, 6, mode="mean", include_last_offset=True)
optimizer = torch.optim.SGD(bags.parameters(), lr=0.1)
words, offsets = torch.randint(0, 20, (12,)), torch.tensor([0, 3, 8])
for _ in range(3):
    optimizer.zero_grad()
    loss = bags(words, offsets).square().sum()
    loss.backward()
    optimizer.step()
    print(loss.item())
