# SPDX-License-Identifier: Apache-2.0
"""Attention pooling over sentences; one batch holds an empty sentence."""

import torch
from torch import nn
from torch.nn import functional as F


class Pool(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.score = nn.Linear(width, 1)

    def forward(self, x, lengths):
        scores = self.score(x).squeeze(-1)
        padding = torch.arange(x.shape[1]) >= lengths[:, None]
        weights = F.softmax(scores.masked_fill(padding, float("-inf")), dim=1)  # <- origin
        return (weights.unsqueeze(-1) * x).sum(1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.pool = Pool(16)
        self.classify = nn.Linear(16, 2)

    def forward(self, tokens, lengths):
        return self.classify(self.pool(self.words(tokens), lengths))


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(5):
    tokens = torch.randint(50, (8, 12))
    lengths = torch.randint(1, 13, (8,))
    if step == 3:
        lengths[5] = 0
    loss = F.cross_entropy(model(tokens, lengths), torch.randint(2, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
