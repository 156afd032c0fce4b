# SPDX-License-Identifier: Apache-2.0
"""A tagger of two bidirectional GRU layers on packed sentences, with class weights and RMSprop."""

import sys

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

WORDS, TAGS, EMBED, HIDDEN, BATCH = 40, 6, 10, 9, 5
IGNORE = -100


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, EMBED, padding_idx=0)
        self.rnn = nn.GRU(
            EMBED, HIDDEN, num_layers=2, bidirectional=True, batch_first=True
        )  # <- gates reset held
        self.attend = nn.Linear(2 * HIDDEN, 1)
        self.out = nn.Linear(4 * HIDDEN, TAGS)

    def forward(self, words, lengths):
        packed = pack_padded_sequence(
            self.embed(words), lengths, batch_first=True, enforce_sorted=False
        )
        states, _ = self.rnn(packed)  # <- gates reset held
        states, _ = pad_packed_sequence(states, batch_first=True)  # <- gates reset held
        scores = self.attend(states).squeeze(-1)
        scores = scores.masked_fill(words == 0, float("-inf"))
        weights = scores.softmax(dim=-1)
        summary = torch.bmm(weights.unsqueeze(1), states)
        return self.out(torch.cat((states, summary.expand_as(states)), dim=-1))


def collate(generator):
    lengths = torch.randint(2, 7, (BATCH,), generator=generator)
    words = [torch.randint(1, WORDS, (int(n),), generator=generator) for n in lengths]
    tags = [(w * 7 + w.roll(1)) % TAGS for w in words]
    words = pad_sequence(words, batch_first=True)
    return words, pad_sequence(tags, batch_first=True, padding_value=IGNORE), lengths


torch.manual_seed(71)
model = Tagger()
torch.save(model.state_dict(), sys.argv[1])
criterion = nn.CrossEntropyLoss(
    weight=torch.tensor([0.5, 1.0, 2.0, 1.0, 3.0, 1.5]), ignore_index=IGNORE
)  # <- weighted
optimizer = torch.optim.RMSprop(
    model.parameters(), lr=0.01, alpha=0.9, eps=1e-3, momentum=0.5
)  # <- rooted
generator = torch.Generator().manual_seed(72)
losses = []
for _ in range(4):
    words, tags, lengths = collate(generator)
    loss = criterion(model(words, lengths).transpose(1, 2), tags)  # <- weighted
    model.zero_grad()
    loss.backward()
    optimizer.step()  # <- rooted
    losses.append(loss.item())
