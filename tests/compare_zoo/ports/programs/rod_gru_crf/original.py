# SPDX-License-Identifier: Apache-2.0
"""Bidirectional nn.GRU tagger with a linear-chain CRF written sentence by sentence."""
import sys

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

torch.set_num_threads(1)

VOCAB, TAGS, EMBED, HIDDEN, LONGEST = 45, 5, 12, 10, 9


class LinearChainCRF(nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.start = nn.Parameter(torch.empty(tags).uniform_(-0.5, 0.5))
        self.end = nn.Parameter(torch.empty(tags).uniform_(-0.5, 0.5))
        # transitions[i, j]: from tag i to tag j
        self.transitions = nn.Parameter(torch.empty(tags, tags).uniform_(-0.5, 0.5))

    def path_score(self, emissions, tags):
        score = self.start[tags[0]] + emissions[0, tags[0]]
        for t in range(1, len(tags)):
            score = score + self.transitions[tags[t - 1], tags[t]] + emissions[t, tags[t]]
        return score + self.end[tags[-1]]  # <- end_of_padding

    def partition(self, emissions):
        alpha = self.start + emissions[0]
        for t in range(1, len(emissions)):
            alpha = torch.logsumexp(alpha.unsqueeze(1) + self.transitions, dim=0) + emissions[t]
        return torch.logsumexp(alpha + self.end, dim=0)

    def nll(self, emissions, tags):
        return self.partition(emissions) - self.path_score(emissions, tags)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, EMBED, padding_idx=0)
        self.gru = nn.GRU(EMBED, HIDDEN, batch_first=True, bidirectional=True)  # <- reset_early
        self.emit = nn.Linear(2 * HIDDEN, TAGS)
        self.crf = LinearChainCRF(TAGS)

    def forward(self, words, tags, lengths):
        packed = pack_padded_sequence(  # <- backward_over_padding
            self.embed(words),
            lengths,
            batch_first=True,
            enforce_sorted=False,
        )
        states, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True)  # <- reset_early backward_over_padding
        emissions = self.emit(states)
        total = 0.0
        for row, n in enumerate(lengths.tolist()):
            total = total + self.crf.nll(emissions[row, :n], tags[row, :n])
        return total / lengths.sum()  # <- sentence_average


def sentences(steps=5, size=6):
    gen = torch.Generator().manual_seed(1234)
    for _ in range(steps):
        lengths = torch.randint(2, LONGEST + 1, (size,), generator=gen)
        lengths[0] = LONGEST
        words = torch.randint(1, VOCAB, (size, LONGEST), generator=gen)
        tags = (words * 7 + words.roll(1, 1)) % TAGS
        keep = torch.arange(LONGEST) < lengths[:, None]
        yield words * keep, tags * keep, lengths


torch.manual_seed(66)
tagger = Tagger()
torch.save(tagger.state_dict(), sys.argv[1])
crf_parameters = list(tagger.crf.parameters())
rest = [p for name, p in tagger.named_parameters() if not name.startswith("crf.")]
optimizer = torch.optim.SGD(  # <- rate_in_velocity
    [{"params": rest, "weight_decay": 1e-3}, {"params": crf_parameters, "weight_decay": 0.0}],
    lr=0.3,
    momentum=0.9,
)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.8)

losses = []
for words, tags, lengths in sentences():
    optimizer.zero_grad()
    loss = tagger(words, tags, lengths)
    loss.backward()
    optimizer.step()  # <- rate_in_velocity
    scheduler.step()
    losses.append(loss.item())
print(losses)
