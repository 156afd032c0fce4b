# SPDX-License-Identifier: Apache-2.0
"""A GRU tagger (Cho et al., 2014) with torch's own layer."""

import sys

import numpy as np
import torch
from torch import nn

WORDS, TAGS, WIDTH, HIDDEN = 31, 7, 10, 14


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.gru = nn.GRU(WIDTH, HIDDEN, batch_first=True)
        self.out = nn.Linear(HIDDEN, TAGS)

    def forward(self, words):
        states, _ = self.gru(self.embed(words))  # <- gates reset update bias shifted
        return self.out(states)  # <- shifted


torch.manual_seed(3)
model = Tagger()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
rng = np.random.default_rng(1)
losses = []
for _ in range(3):
    words = torch.from_numpy(rng.integers(0, WORDS, (5, 8)))
    tags = torch.from_numpy(rng.integers(0, TAGS, (5, 8)))
    loss = nn.functional.cross_entropy(model(words).flatten(0, 1), tags.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
