# SPDX-License-Identifier: Apache-2.0
"""A tagger of names: embeddings, a packed bidirectional LSTM and a conditional random field."""

import sys

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

WORDS, TAGS, EMBED, HIDDEN, BATCH, LENGTH = 30, 5, 12, 10, 4, 9


class CRF(nn.Module):
    """Start, end and pair scores; batches are time first."""

    def __init__(self, num_tags):
        super().__init__()
        self.start_transitions = nn.Parameter(torch.empty(num_tags).uniform_(-1, 1))
        self.end_transitions = nn.Parameter(torch.empty(num_tags).uniform_(-1, 1))
        self.transitions = nn.Parameter(torch.empty(num_tags, num_tags).uniform_(-1, 1))

    def forward(self, emissions, tags, mask):
        numerator = self._score(emissions, tags, mask)
        denominator = self._normalizer(emissions, mask)
        return (numerator - denominator).sum() / mask.sum()  # <- per_token

    def _score(self, emissions, tags, mask):
        length, batch = tags.shape
        score = self.start_transitions[tags[0]] + emissions[0, torch.arange(batch), tags[0]]
        for i in range(1, length):
            score += self.transitions[tags[i - 1], tags[i]] * mask[i]  # <- turned
            score += emissions[i, torch.arange(batch), tags[i]] * mask[i]
        last = tags[mask.long().sum(0) - 1, torch.arange(batch)]
        return score + self.end_transitions[last]

    def _normalizer(self, emissions, mask):
        score = self.start_transitions + emissions[0]
        for i in range(1, len(emissions)):
            pairs = score.unsqueeze(2) + self.transitions + emissions[i].unsqueeze(1)  # <- turned
            score = torch.where(mask[i].unsqueeze(1), pairs.logsumexp(1), score)  # <- turned
        return torch.logsumexp(score + self.end_transitions, dim=1)

    def best(self, emissions, mask):
        score = self.start_transitions + emissions[0]
        for i in range(1, len(emissions)):
            pairs = score.unsqueeze(2) + self.transitions + emissions[i].unsqueeze(1)
            score = torch.where(mask[i].unsqueeze(1), pairs.max(dim=1).values, score)
        return (score + self.end_transitions).max(dim=1).values  # <- best_end


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, EMBED, padding_idx=0)
        self.lstm = nn.LSTM(
            EMBED, HIDDEN, bidirectional=True, batch_first=True
        )  # <- gates reversed
        self.hidden2tag = nn.Linear(2 * HIDDEN, TAGS)
        self.crf = CRF(TAGS)

    def emissions(self, words, lengths):
        packed = pack_padded_sequence(self.embed(words), lengths, batch_first=True)
        out, _ = self.lstm(packed)  # <- gates reversed
        out, _ = pad_packed_sequence(out, batch_first=True)  # <- reversed
        return self.hidden2tag(out).transpose(0, 1)

    def forward(self, words, tags, lengths):
        return -self.crf(self.emissions(words, lengths), tags.t(), (words != 0).t())


def sentences(generator):
    lengths = torch.tensor([9, 8, 6, 4])
    words = torch.randint(1, WORDS, (BATCH, LENGTH), generator=generator)
    tags = torch.randint(TAGS, (BATCH, LENGTH), generator=generator)
    words[torch.arange(LENGTH) >= lengths[:, None]] = 0
    return words, tags, lengths


torch.manual_seed(41)
model = Tagger()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=0.05, eps=1e-4)
generator = torch.Generator().manual_seed(42)
losses = []
for epoch in range(4):
    model.train()
    loss = model(*sentences(generator))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- adam_epsilon
    losses.append(loss.item())

model.eval()
with torch.no_grad():
    words, _, lengths = sentences(generator)
    losses += model.crf.best(model.emissions(words, lengths), (words != 0).t()).tolist()
