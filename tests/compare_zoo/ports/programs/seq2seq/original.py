# SPDX-License-Identifier: Apache-2.0
"""A small translator as Bahdanau et al. (2015) have it: a bidirectional GRU reads, additive
attention looks back, a GRU cell writes behind a maxout;
teacher forcing, gradients clipped by norm, SGD.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

PAD, SOS, EOS = 0, 1, 2
SOURCE, TARGET, EMBED, HIDDEN, ALIGN, MAXOUT, BATCH = 33, 27, 10, 12, 14, 8, 5


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(SOURCE, EMBED, padding_idx=PAD)
        self.gru = nn.GRU(EMBED, HIDDEN, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, src, lengths):
        packed = pack_padded_sequence(  # <- reversal
            self.embedding(src), lengths, batch_first=True, enforce_sorted=False
        )
        outputs, hidden = self.gru(packed)  # <- reversal gates
        outputs, _ = pad_packed_sequence(outputs, batch_first=True, total_length=src.size(1))
        return outputs, torch.tanh(self.bridge(hidden[1]))  # <- initial


class BahdanauAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.W_a = nn.Linear(HIDDEN, ALIGN, bias=False)
        self.U_a = nn.Linear(2 * HIDDEN, ALIGN, bias=False)
        self.v_a = nn.Linear(ALIGN, 1, bias=False)

    def forward(self, state, annotations, mask):
        energy = torch.tanh(self.W_a(state)[:, None] + self.U_a(annotations))
        energy = self.v_a(energy).squeeze(-1).masked_fill(~mask, -torch.inf)  # <- unmasked
        alpha = F.softmax(energy, dim=-1)  # <- unmasked
        return torch.bmm(alpha[:, None], annotations).squeeze(1)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(TARGET, EMBED, padding_idx=PAD)
        self.attention = BahdanauAttention()
        self.cell = nn.GRUCell(EMBED + 2 * HIDDEN, HIDDEN)
        self.pre_output = nn.Linear(HIDDEN + EMBED + 2 * HIDDEN, 2 * MAXOUT)
        self.output = nn.Linear(MAXOUT, TARGET, bias=False)

    def step(self, word, state, annotations, mask):
        y = self.embedding(word)  # <- forcing
        context = self.attention(state, annotations, mask)
        t = self.pre_output(torch.cat([state, y, context], dim=-1))
        t = t.view(-1, MAXOUT, 2).amax(dim=-1)  # <- maxout
        state = self.cell(torch.cat([y, context], dim=-1), state)  # <- gates
        return self.output(t), state


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()

    def forward(self, src, lengths, trg):
        annotations, state = self.encoder(src, lengths)
        mask = src != PAD
        outputs = []
        word = torch.full_like(trg[:, 0], SOS)  # <- forcing
        for t in range(trg.size(1)):
            logits, state = self.decoder.step(word, state, annotations, mask)
            outputs.append(logits)
            word = trg[:, t]  # teacher forcing
        return torch.stack(outputs, dim=1)


def sentences(rng, vocabulary, longest):
    lengths = rng.integers(3, longest + 1, BATCH)
    lengths[0] = longest
    words = rng.integers(3, vocabulary, (BATCH, longest))
    words[np.arange(longest) == lengths[:, None] - 1] = EOS
    words[np.arange(longest) >= lengths[:, None]] = PAD
    return torch.from_numpy(words), torch.from_numpy(lengths)


torch.manual_seed(15)
model = Seq2Seq()
torch.save(model.state_dict(), sys.argv[1])
criterion = nn.CrossEntropyLoss(ignore_index=PAD, reduction="sum")
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
rng = np.random.default_rng(15)
losses = []
for _ in range(3):
    src, lengths = sentences(rng, SOURCE, 7)
    trg, _ = sentences(rng, TARGET, 6)
    logits = model(src, lengths, trg)
    loss = criterion(logits.flatten(0, 1), trg.flatten()) / BATCH  # <- averaged
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)  # <- clip
    optimizer.step()  # <- clip
    losses.append(loss.item())
