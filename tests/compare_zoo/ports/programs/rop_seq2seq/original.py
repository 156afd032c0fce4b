# SPDX-License-Identifier: Apache-2.0
"""GRU encoder-decoder with additive attention, packed sequences and teacher forcing."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

torch.set_num_threads(1)

PAD, BOS, EOS, VOCAB = 0, 1, 2, 23
EMB, HID = 12, 16


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, EMB)
        self.rnn = nn.GRU(EMB, HID, batch_first=True)  # <- reset_before_matmul

    def forward(self, src, lengths):
        packed = pack_padded_sequence(self.embedding(src), lengths, batch_first=True, enforce_sorted=False)  # <- state_past_end
        output, hidden = self.rnn(packed)  # <- state_past_end reset_before_matmul
        memory, _ = pad_packed_sequence(output, batch_first=True)
        return memory, hidden[-1]  # <- state_past_end


class BahdanauAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query_proj = nn.Linear(HID, HID, bias=False)
        self.key_proj = nn.Linear(HID, HID, bias=False)
        self.energy = nn.Linear(HID, 1, bias=False)

    def forward(self, hidden, memory, mask):
        keys = self.key_proj(memory)  # <- keys_detached
        score = self.energy(torch.tanh(self.query_proj(hidden)[:, None] + keys)).squeeze(-1)  # <- keys_detached
        score = score.masked_fill(~mask, float("-inf"))  # <- attention_to_padding
        weight = torch.softmax(score, dim=1)  # <- attention_to_padding
        return torch.bmm(weight[:, None], memory).squeeze(1)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, EMB)
        self.attention = BahdanauAttention()
        self.cell = nn.GRUCell(EMB + HID, HID)  # <- reset_before_matmul
        self.out = nn.Linear(HID + HID, VOCAB)

    def forward(self, tgt_in, hidden, memory, mask):
        logits = []
        for t in range(tgt_in.size(1)):
            context = self.attention(hidden, memory, mask)
            step_in = torch.cat([self.embedding(tgt_in[:, t]), context], dim=-1)
            hidden = self.cell(step_in, hidden)  # <- reset_before_matmul
            logits.append(self.out(torch.cat([hidden, context], dim=-1)))
        return torch.stack(logits, dim=1)


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.decoder = Decoder()
        self.bridge = nn.Linear(HID, HID)

    def forward(self, src, src_len, tgt):
        memory, hidden = self.encoder(src, src_len)
        hidden = torch.tanh(self.bridge(hidden))
        return self.decoder(tgt[:, :-1], hidden, memory, src != PAD)


def make_pairs(n, gen):
    pairs = []
    for _ in range(n):
        length = int(torch.randint(3, 10, (1,), generator=gen))
        words = torch.randint(3, VOCAB, (length,), generator=gen)
        reply = words.flip(0)[: max(2, length - 2)]
        pairs.append((words, torch.cat([torch.tensor([BOS]), reply, torch.tensor([EOS])])))
    return pairs


torch.manual_seed(3)
model = Seq2Seq()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
pairs = make_pairs(30, torch.Generator().manual_seed(17))

losses = []
for step in range(5):
    sources, targets = zip(*pairs[step * 6 : step * 6 + 6])
    lengths = torch.tensor([len(s) for s in sources])
    src = pad_sequence(sources, batch_first=True, padding_value=PAD)
    tgt = pad_sequence(targets, batch_first=True, padding_value=PAD)
    logits = model(src, lengths, tgt)
    loss = F.cross_entropy(logits.flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=PAD)  # <- mean_per_sentence
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    losses.append(loss.item())
print(losses)
