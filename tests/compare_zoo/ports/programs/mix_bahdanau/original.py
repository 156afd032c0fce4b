# SPDX-License-Identifier: Apache-2.0
"""Sequence to sequence with Bahdanau attention and teacher forcing, on nn.GRU modules."""

import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

PAD, SOS = 0, 1
VOCAB, HID = 15, 12


class EncoderRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, HID)
        self.gru = nn.GRU(HID, HID, batch_first=True)

    def forward(self, input):
        return self.gru(self.embedding(input))  # <- reset_gate


class BahdanauAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.Wa = nn.Linear(HID, HID)
        self.Ua = nn.Linear(HID, HID)
        self.Va = nn.Linear(HID, 1)

    def forward(self, query, keys, mask):
        scores = self.Va(torch.tanh(self.Wa(query) + self.Ua(keys)))
        scores = scores.squeeze(2).unsqueeze(1)
        scores = scores.masked_fill(~mask[:, None, :], float("-inf"))  # <- source_mask
        weights = F.softmax(scores, dim=-1)  # <- source_mask
        return torch.bmm(weights, keys)


class AttnDecoderRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, HID)
        self.attention = BahdanauAttention()
        self.gru = nn.GRU(2 * HID, HID, batch_first=True)
        self.out = nn.Linear(HID, VOCAB)

    def forward(self, encoder_outputs, encoder_hidden, mask, target):
        hidden = encoder_hidden
        bos = torch.full_like(target[:, :1], SOS)  # <- forced_shift
        inputs = torch.cat([bos, target[:, :-1]], dim=1)  # <- forced_shift
        outputs = []
        for i in range(target.size(1)):
            embedded = self.embedding(inputs[:, i : i + 1])  # <- forced_shift
            query = hidden.permute(1, 0, 2)  # <- stale_query
            context = self.attention(query, encoder_outputs, mask)  # <- stale_query
            step, hidden = self.gru(torch.cat((embedded, context), dim=2), hidden)  # <- reset_gate
            outputs.append(self.out(step))
        return torch.cat(outputs, dim=1)


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = EncoderRNN()
        self.decoder = AttnDecoderRNN()

    def forward(self, source, target):
        outputs, hidden = self.encoder(source)
        return self.decoder(outputs, hidden, source != PAD, target)


def make_batch(gen, n=6, s=9, t=7):
    def padded(length):
        words = torch.randint(2, VOCAB, (n, length), generator=gen)
        size = torch.randint(3, length + 1, (n, 1), generator=gen)
        return words.masked_fill(torch.arange(length) >= size, PAD)

    return padded(s), padded(t)


torch.manual_seed(7)
model = Seq2Seq()
for p in model.parameters():
    p.data.mul_(1.8)
torch.save(model.state_dict(), sys.argv[1])

gen = torch.Generator().manual_seed(21)
batches = [make_batch(gen) for _ in range(4)]
criterion = nn.CrossEntropyLoss(ignore_index=PAD)
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)

losses = []
for source, target in batches:
    logits = model(source, target)
    loss = criterion(logits.reshape(-1, VOCAB), target.reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # <- clip_each
    optimizer.step()
    losses.append(loss.item())
print(losses)
