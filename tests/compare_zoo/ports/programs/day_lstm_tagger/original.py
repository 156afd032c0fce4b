# SPDX-License-Identifier: Apache-2.0
"""A bidirectional LSTM tagger over packed sequences."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

VOCAB, EMB, HID, TAGS, PAD_TAG, BATCH, MAX_LEN = 30, 16, 12, 6, -100, 5, 9


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, EMB, padding_idx=0)
        self.lstm = nn.LSTM(EMB, HID, batch_first=True, bidirectional=True)
        self.norm = nn.LayerNorm(2 * HID)
        self.fc = nn.Linear(2 * HID, TAGS)

    def forward(self, words, lengths):
        embedded = self.embedding(words)
        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        output, _ = self.lstm(packed)  # <- gates reverse held cell
        output, _ = pad_packed_sequence(output, batch_first=True, total_length=words.size(1))
        return self.fc(torch.relu(self.norm(output)))  # <- activation


torch.manual_seed(33)
model = Tagger()
torch.save(model.state_dict(), sys.argv[1])
criterion = nn.CrossEntropyLoss(ignore_index=PAD_TAG)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
rng = np.random.default_rng(34)
losses = []
for _ in range(3):
    words = torch.from_numpy(rng.integers(1, VOCAB, (BATCH, MAX_LEN)))
    tags = torch.from_numpy(rng.integers(0, TAGS, (BATCH, MAX_LEN)))
    lengths = torch.from_numpy(rng.integers(4, MAX_LEN + 1, BATCH))
    padding = torch.arange(MAX_LEN)[None, :] >= lengths[:, None]
    words[padding] = 0
    tags[padding] = PAD_TAG
    optimizer.zero_grad()
    scores = model(words, lengths)
    loss = criterion(scores.view(-1, TAGS), tags.view(-1))  # <- ignored
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    losses.append(loss.item())
