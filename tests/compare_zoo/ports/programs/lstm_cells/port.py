# SPDX-License-Identifier: Apache-2.0
"""The tagger with an own LSTM cell, whose gates are one product; the GRU stays torch's."""

import sys

import numpy as np
import torch
from torch import nn

WORDS, WIDTH, HIDDEN, TAGS, BATCH, LENGTH = 37, 12, 16, 5, 6, 4


class Recurrence(nn.Module):
    def __init__(self, inside):
        super().__init__()
        self.weight_ih = nn.Parameter(torch.empty(4 * HIDDEN, inside))
        self.weight_hh = nn.Parameter(torch.empty(4 * HIDDEN, HIDDEN))
        self.bias_ih = nn.Parameter(torch.empty(4 * HIDDEN))
        self.bias_hh = nn.Parameter(torch.empty(4 * HIDDEN))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)

    def forward(self, sequence):
        h = c = torch.zeros(sequence.shape[0], HIDDEN)
        outputs = []
        for x in sequence.unbind(1):
            gates = x @ self.weight_ih.t() + self.bias_ih  # <- bias
            gates = gates + h @ self.weight_hh.t() + self.bias_hh  # <- bias
            i, f, g, o = gates.chunk(4, dim=1)  # <- gates
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)  # <- forget gates
            h = torch.sigmoid(o) * torch.tanh(c)  # <- state
            outputs.append(h)
        return torch.stack(outputs, dim=1)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.lstm0, self.lstm1 = Recurrence(WIDTH), Recurrence(HIDDEN)
        self.gru = nn.GRU(HIDDEN, HIDDEN, batch_first=True)
        self.classifier = nn.Linear(HIDDEN, TAGS)

    def forward(self, words):
        out = self.lstm1(self.lstm0(self.embedding(words)))
        out, _ = self.gru(out)  # <- reset
        return self.classifier(out)


def apart(old):
    new = {}
    for name, value in old.items():
        if name.startswith("lstm."):
            rest, _, layer = name.removeprefix("lstm.").rpartition("_l")
            new[f"lstm{layer}.{rest}"] = value
        else:
            new[name] = value
    return new


model = Tagger()
model.load_state_dict(apart(torch.load(sys.argv[1])))
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
