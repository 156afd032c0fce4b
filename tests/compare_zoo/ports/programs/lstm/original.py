# SPDX-License-Identifier: Apache-2.0
"""A tagger with torch's own LSTM of two layers: embedding, recurrence, a class a word, a GRU that
reads the sentence once more.
"""

import sys

import numpy as np
import torch
from torch import nn

WORDS, WIDTH, HIDDEN, TAGS, BATCH, LENGTH = 37, 12, 16, 5, 6, 4


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.lstm = nn.LSTM(WIDTH, HIDDEN, num_layers=2, batch_first=True)
        self.gru = nn.GRU(HIDDEN, HIDDEN, batch_first=True)
        self.classifier = nn.Linear(HIDDEN, TAGS)

    def forward(self, words):
        out, _ = self.lstm(self.embedding(words))  # <- gates forget state bias
        out, _ = self.gru(out)  # <- reset
        return self.classifier(out)


torch.manual_seed(3)
model = Tagger()
torch.save(model.state_dict(), sys.argv[1])
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
rng = np.random.default_rng(5)
losses = []
for _ in range(3):
    words = torch.from_numpy(rng.integers(0, WORDS, (BATCH, LENGTH)))
    tags = torch.from_numpy(rng.integers(0, TAGS, (BATCH, LENGTH)))
    optimizer.zero_grad()
    loss = criterion(model(words).reshape(-1, TAGS), tags.reshape(-1))  # <- reduction
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # <- clip
    optimizer.step()  # <- momentum clip
    losses.append(loss.item())
