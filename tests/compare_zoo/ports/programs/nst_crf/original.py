# SPDX-License-Identifier: Apache-2.0
"""BiLSTM-CRF tagger: packed sequences through nn.LSTM, then a CRF in the manner of pytorch-crf."""
import sys

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class CRF(nn.Module):
    def __init__(self, num_tags):
        super().__init__()
        self.start_transitions = nn.Parameter(torch.empty(num_tags))
        self.end_transitions = nn.Parameter(torch.empty(num_tags))
        self.transitions = nn.Parameter(torch.empty(num_tags, num_tags))
        for p in self.parameters():
            nn.init.uniform_(p, -0.5, 0.5)

    def forward(self, emissions, tags, mask):
        """emissions [T, B, K], tags and mask [T, B]; token mean of the log likelihood."""
        llh = self._score(emissions, tags, mask) - self._normalizer(emissions, mask)
        return llh.sum() / mask.float().sum()  # <- token_mean

    def _score(self, emissions, tags, mask):
        T, B = tags.shape
        mask, rows = mask.float(), torch.arange(B)
        score = self.start_transitions[tags[0]] + emissions[0, rows, tags[0]]
        for i in range(1, T):
            score = score + self.transitions[tags[i - 1], tags[i]] * mask[i]  # <- from_to
            score = score + emissions[i, rows, tags[i]] * mask[i]
        seq_ends = mask.long().sum(dim=0) - 1  # <- end_tag
        last_tags = tags[seq_ends, rows]  # <- end_tag
        return score + self.end_transitions[last_tags]  # <- end_tag

    def _normalizer(self, emissions, mask):
        score = self.start_transitions + emissions[0]
        for i in range(1, emissions.shape[0]):
            nxt = score.unsqueeze(2) + self.transitions + emissions[i].unsqueeze(1)
            score = torch.where(mask[i].unsqueeze(1), torch.logsumexp(nxt, dim=1), score)
        return torch.logsumexp(score + self.end_transitions, dim=1)


class BiLSTM_CRF(nn.Module):
    def __init__(self, vocab, tags, emb=12, hidden=10):
        super().__init__()
        self.embed = nn.Embedding(vocab, emb, padding_idx=0)
        self.lstm = nn.LSTM(emb, hidden, bidirectional=True)
        self.hidden2tag = nn.Linear(2 * hidden, tags)
        self.crf = CRF(tags)

    def forward(self, words, lengths, tags):
        packed = pack_padded_sequence(self.embed(words), lengths,  # <- back_start
                                      enforce_sorted=False)
        out, _ = self.lstm(packed)  # <- gate_order back_start
        out, _ = pad_packed_sequence(out)
        mask = torch.arange(words.shape[0])[:, None] < lengths
        return -self.crf(self.hidden2tag(out), tags, mask)


torch.manual_seed(0)
model = BiLSTM_CRF(30, 5)
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
gen = torch.Generator().manual_seed(31)
losses = []
for step in range(4):
    lengths = torch.randint(3, 9, (6,), generator=gen)
    lengths[step] = 9
    words = torch.randint(1, 30, (9, 6), generator=gen)
    tags = (words + torch.randint(0, 2, (9, 6), generator=gen)) % 5
    words = words.masked_fill(torch.arange(9)[:, None] >= lengths, 0)
    optimizer.zero_grad()
    loss = model(words, lengths, tags)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(losses)
