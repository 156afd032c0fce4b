# SPDX-License-Identifier: Apache-2.0
"""BiLSTM-CRF tagger with packed sequences, in the manner of pytorch-crf, trained by SGD with clipping."""
import sys

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

torch.set_num_threads(1)

VOCAB, EMB, HIDDEN, TAGS, LAYERS, STEPS, BATCH = 30, 10, 8, 5, 2, 5, 4
LR, MOMENTUM, MAX_NORM = 0.3, 0.8, 0.5


class CRF(nn.Module):
    def __init__(self, num_tags):
        super().__init__()
        self.start_transitions = nn.Parameter(torch.empty(num_tags))
        self.end_transitions = nn.Parameter(torch.empty(num_tags))
        self.transitions = nn.Parameter(torch.empty(num_tags, num_tags))
        for p in self.parameters():
            nn.init.uniform_(p, -0.5, 0.5)

    def forward(self, emissions, tags, mask):
        score = self._compute_score(emissions, tags, mask)  # <- gold_without_end
        log_z = self._compute_normalizer(emissions, mask)
        return -(score - log_z).mean()  # <- token_mean

    def _compute_score(self, emissions, tags, mask):
        seq, batch = tags.shape
        rows = torch.arange(batch)
        score = self.start_transitions[tags[0]] + emissions[0, rows, tags[0]]
        for i in range(1, seq):
            gain = self.transitions[tags[i - 1], tags[i]] + emissions[i, rows, tags[i]]
            score = score + gain * mask[i]
        last = tags[mask.long().sum(0) - 1, rows]
        return score + self.end_transitions[last]  # <- gold_without_end

    def _compute_normalizer(self, emissions, mask):
        score = self.start_transitions + emissions[0]
        for i in range(1, len(emissions)):
            nxt = torch.logsumexp(score.unsqueeze(2) + self.transitions + emissions[i].unsqueeze(1), dim=1)
            score = torch.where(mask[i].bool().unsqueeze(1), nxt, score)
        return torch.logsumexp(score + self.end_transitions, dim=1)


class BiLSTMTagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, EMB, padding_idx=0)
        self.lstm = nn.LSTM(EMB, HIDDEN, num_layers=LAYERS, bidirectional=True)  # <- gates_ifog reads_padding
        self.hidden2tag = nn.Linear(2 * HIDDEN, TAGS)
        self.crf = CRF(TAGS)

    def forward(self, words, tags, lengths):
        packed = pack_padded_sequence(self.embedding(words), lengths, enforce_sorted=False)  # <- reads_padding
        out, _ = self.lstm(packed)  # <- gates_ifog reads_padding
        out, _ = pad_packed_sequence(out, total_length=words.size(0))  # <- reads_padding
        mask = (torch.arange(words.size(0))[:, None] < lengths[None]).float()
        return self.crf(self.hidden2tag(out), tags, mask)  # <- token_mean


def make_batch(gen):
    lengths = torch.randint(3, 10, (BATCH,), generator=gen)
    words = [torch.randint(1, VOCAB, (n,), generator=gen) for n in lengths.tolist()]
    tags = [(w * 3 + torch.randint(0, 2, w.shape, generator=gen)) % TAGS for w in words]
    return pad_sequence(words), pad_sequence(tags), lengths


torch.manual_seed(4)
model = BiLSTMTagger()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
gen = torch.Generator().manual_seed(77)

losses = []
for _ in range(STEPS):
    words, tags, lengths = make_batch(gen)
    model.zero_grad()
    loss = model(words, tags, lengths)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)  # <- clip_each
    optimizer.step()
    losses.append(loss.item())
print(losses)
