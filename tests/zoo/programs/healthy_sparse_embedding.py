# SPDX-License-Identifier: Apache-2.0
"""Sparse embedding gradients with SparseAdam beside a dense optimizer."""

import torch
from torch import nn

torch.manual_seed(0)
words = nn.EmbeddingBag(100, 8, sparse=True, mode="sum")
head = nn.Linear(8, 2)
sparse = torch.optim.SparseAdam(words.parameters(), lr=1e-2)
dense = torch.optim.Adam(head.parameters(), lr=1e-2)
for step in range(4):
    tokens = torch.randint(100, (24,))
    offsets = torch.tensor([0, 6, 6, 18])
    loss = nn.functional.cross_entropy(head(words(tokens, offsets)), torch.randint(2, (4,)))
    sparse.zero_grad()
    dense.zero_grad()
    loss.backward()
    sparse.step()
    dense.step()
    print(step, loss.item().hex())
