# SPDX-License-Identifier: Apache-2.0
"""Hashed n-gram features: the bucket is computed in int32 and wraps around."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
table = nn.Embedding(1000, 16)
head = nn.Linear(16, 2)
optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.1)
for step in range(4):
    grams = torch.randint(1_000_000 * (step + 1), (32, 8), dtype=torch.int32)
    if step == 2:
        grams[0, 0] = 900_000_000
    bucket = grams * 3  # <- origin
    features = table(bucket.remainder(1000)).mean(1)
    loss = F.cross_entropy(head(features), torch.randint(2, (32,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
