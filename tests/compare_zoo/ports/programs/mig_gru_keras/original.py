# SPDX-License-Identifier: Apache-2.0
"""A translator of GRUs: a packed two-way encoder, a decoder cell with attention, teacher forcing."""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

PAD, BOS, SOURCE, TARGET, EMBED, HIDDEN, BATCH = 0, 1, 20, 18, 8, 10, 4


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(SOURCE, EMBED, padding_idx=PAD)
        self.gru = nn.GRU(EMBED, HIDDEN, bidirectional=True, batch_first=True)  # <- order
        self.bridge = nn.Linear(2 * HIDDEN, HIDDEN)

    def forward(self, source, lengths):
        packed = pack_padded_sequence(self.embed(source), lengths, batch_first=True)
        states, last = self.gru(packed)  # <- order skipped
        states, _ = pad_packed_sequence(states, batch_first=True)
        return states, torch.tanh(self.bridge(torch.cat([last[0], last[1]], 1)))  # <- skipped


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(TARGET, EMBED)
        self.cell = nn.GRUCell(EMBED + 2 * HIDDEN, HIDDEN)  # <- order
        self.query = nn.Linear(HIDDEN, HIDDEN)
        self.key = nn.Linear(2 * HIDDEN, HIDDEN, bias=False)
        self.energy = nn.Linear(HIDDEN, 1, bias=False)
        self.out = nn.Linear(3 * HIDDEN + EMBED, TARGET)

    def forward(self, words, states, hidden, mask):
        logits = []
        keys = self.key(states)
        for word in words.unbind(1):
            score = self.energy(torch.tanh(self.query(hidden)[:, None] + keys)).squeeze(2)
            weight = F.softmax(score.masked_fill(~mask, float("-inf")), dim=1)  # <- attended
            context = torch.bmm(weight[:, None], states).squeeze(1)  # <- attended
            embedded = self.embed(word)  # <- forced
            hidden = self.cell(torch.cat([embedded, context], 1), hidden)  # <- order
            logits.append(self.out(torch.cat([hidden, context, embedded], 1)))
        return torch.stack(logits, 1)


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()

    def forward(self, source, lengths, target):
        states, hidden = self.encoder(source, lengths)
        words = torch.cat([torch.full((BATCH, 1), BOS), target[:, :-1]], 1)  # <- forced
        return self.decoder(words, states, hidden, source != PAD)  # <- attended forced


def sentences(generator):
    lengths = torch.tensor([7, 6, 4, 3])
    source = torch.randint(2, SOURCE, (BATCH, 7), generator=generator)
    source = source.masked_fill(torch.arange(7) >= lengths[:, None], PAD)
    target = torch.randint(2, TARGET, (BATCH, 6), generator=generator)
    sizes = torch.randint(2, 7, (BATCH, 1), generator=generator)
    return source, lengths, target.masked_fill(torch.arange(6) >= sizes, PAD)


torch.manual_seed(191)
model = Translator()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.RMSprop(model.parameters(), lr=4e-3, alpha=0.9, eps=1e-3)
generator = torch.Generator().manual_seed(192)
losses = []
for _ in range(4):
    source, lengths, target = sentences(generator)
    logits = model(source, lengths, target)
    loss = F.cross_entropy(logits.transpose(1, 2), target, ignore_index=PAD)  # <- per_word
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
