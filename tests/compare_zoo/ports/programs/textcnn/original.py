# SPDX-License-Identifier: Apache-2.0
"""Kim's convolutional network for sentences (2014): a static and a tuned channel of embeddings,
filters of three widths, maxima over time, rows of the classifier held within a norm, Adadelta.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

WORDS, WIDTH, FILTERS, WIDTHS, CLASSES = 67, 14, 8, (3, 4, 5), 4
BATCH, LENGTH, MAX_NORM = 8, 16, 0.5


class TextCNN(nn.Module):
    def __init__(self, vectors):
        super().__init__()
        self.static = nn.Embedding.from_pretrained(vectors, freeze=True)
        self.tuned = nn.Embedding.from_pretrained(vectors.clone(), freeze=False)
        self.convs = nn.ModuleList([nn.Conv2d(2, FILTERS, (w, WIDTH)) for w in WIDTHS])
        self.fc = nn.Linear(len(WIDTHS) * FILTERS, CLASSES)

    def forward(self, words):
        x = torch.stack([self.static(words), self.tuned(words)], dim=1)  # <- channels
        features = [F.relu(conv(x)).squeeze(3) for conv in self.convs]  # <- windows
        pooled = [F.max_pool1d(f, f.size(2)).squeeze(2) for f in features]  # <- pooling
        return self.fc(torch.cat(pooled, 1))  # <- widths


def renorm(weight):
    with torch.no_grad():
        weight.copy_(torch.renorm(weight, p=2, dim=0, maxnorm=MAX_NORM))  # <- constraint


torch.manual_seed(21)
rng = np.random.default_rng(22)
vectors = torch.from_numpy(rng.uniform(-0.5, 0.5, (WORDS, WIDTH)).astype(np.float32))
model = TextCNN(vectors)
torch.save(model.state_dict(), sys.argv[1])
tuned = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.Adadelta(tuned, lr=1.0, rho=0.95, eps=1e-6)
losses = []
for _ in range(3):
    words = torch.from_numpy(rng.integers(0, WORDS, (BATCH, LENGTH)))
    labels = torch.from_numpy(rng.integers(0, CLASSES, BATCH))
    optimizer.zero_grad()
    loss = F.cross_entropy(model(words), labels)
    loss.backward()
    optimizer.step()  # <- rho epsilon deltas
    renorm(model.fc.weight)
    losses.append(loss.item())
