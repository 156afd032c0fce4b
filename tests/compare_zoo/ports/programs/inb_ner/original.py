# SPDX-License-Identifier: Apache-2.0
"""Named-entity tagger: word plus character-CNN features, BiLSTM, linear-chain CRF with Viterbi."""
import sys

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

TAGS = 7


class CharCNN(nn.Module):
    def __init__(self, chars=30, dim=8, filters=12):
        super().__init__()
        self.embed = nn.Embedding(chars, dim, padding_idx=0)
        self.conv = nn.Conv1d(dim, filters, 3, padding=1)

    def forward(self, chars):
        b, t, c = chars.shape
        feats = self.embed(chars.reshape(b * t, c)).transpose(1, 2)
        feats = torch.tanh(self.conv(feats))  # <- charpool
        return feats.amax(dim=2).view(b, t, -1)  # <- charpool


class CRF(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.start = nn.Parameter(torch.randn(n))
        self.end = nn.Parameter(torch.randn(n))
        self.transitions = nn.Parameter(torch.randn(n, n))  # [from, to]

    def log_partition(self, emissions, mask):
        alpha = self.start + emissions[:, 0]
        for t in range(1, emissions.size(1)):
            inner = alpha.unsqueeze(2) + self.transitions  # <- direction
            inner = inner + emissions[:, t].unsqueeze(1)
            new = torch.logsumexp(inner, dim=1)  # <- direction
            alpha = torch.where(mask[:, t, None], new, alpha)  # <- frozen
        return torch.logsumexp(alpha + self.end, dim=1)  # <- stop

    def decode(self, emissions, mask):
        """Best path's score and tags, one sentence at a time."""
        scores, paths = [], []
        for emit, keep in zip(emissions, mask):
            emit = emit[: int(keep.sum())]
            best, back = self.start + emit[0], []
            for row in emit[1:]:
                best, ptr = (best.unsqueeze(1) + self.transitions).max(dim=0)
                best = best + row
                back.append(ptr)
            best = best + self.end
            tag = int(best.argmax())
            path = [tag]
            for ptr in reversed(back):
                tag = int(ptr[tag])
                path.append(tag)
            scores.append(best.max())
            paths.append(path[::-1])
        return torch.stack(scores), paths


class Tagger(nn.Module):
    def __init__(self, words=80, dim=20, hidden=16):
        super().__init__()
        self.words = nn.Embedding(words, dim, padding_idx=0)
        self.chars = CharCNN()
        self.lstm = nn.LSTM(dim + 12, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, TAGS)
        self.crf = CRF(TAGS)

    def emissions(self, words, chars, lengths):
        x = torch.cat([self.words(words), self.chars(chars)], dim=-1)
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        packed, _ = self.lstm(packed)  # <- gateorder
        hidden, _ = pad_packed_sequence(packed, batch_first=True, total_length=words.size(1))
        return self.out(hidden)

    def forward(self, words, chars, lengths):
        mask = words.ne(0)
        emissions = self.emissions(words, chars, lengths)
        log_z = self.crf.log_partition(emissions, mask)
        score, paths = self.crf.decode(emissions, mask)
        return log_z - score, paths


torch.manual_seed(0)
tagger = Tagger()
for p in tagger.parameters():
    p.data = torch.randn_like(p) * (0.4 if p.dim() > 1 else 0.6)
data = []
for _ in range(4):
    lengths = torch.randint(3, 10, (4,))
    words = torch.randint(1, 80, (4, 9)) * (torch.arange(9) < lengths[:, None])
    data.append((words, torch.randint(1, 30, (4, 9, 6)), lengths))
torch.save({"model": tagger.state_dict(), "data": data}, sys.argv[1])

tagger.eval()
losses = []
with torch.no_grad():
    for words, chars, lengths in data:
        gap, paths = tagger(words, chars, lengths)
        entity = sum(tag != 0 for path in paths for tag in path)
        losses.append(gap.mean().item() + entity / int(lengths.sum()))
print(losses)
