# SPDX-License-Identifier: Apache-2.0
"""LSTM over packed sequences of different lengths."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(30, 8, padding_idx=0)
        self.lstm = nn.LSTM(8, 8, num_layers=2, bidirectional=True, dropout=0.2, batch_first=True)
        self.tag = nn.Linear(16, 4)

    def forward(self, tokens, lengths):
        packed = pack_padded_sequence(
            self.words(tokens), lengths, batch_first=True, enforce_sorted=False
        )
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.tag(states)


torch.manual_seed(0)
model = Tagger()
optimizer = torch.optim.NAdam(model.parameters(), lr=1e-2)
for step in range(3):
    lengths = torch.tensor([6, 2, 4])
    tokens = torch.randint(1, 30, (3, 6)) * (torch.arange(6) < lengths[:, None])
    tags = torch.where(tokens > 0, tokens % 4, -100)
    loss = nn.functional.cross_entropy(model(tokens, lengths).flatten(0, 1), tags.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
