# SPDX-License-Identifier: Apache-2.0
"""Encoder-decoder on pairs of uneven length; padded micro-batches, gradients accumulated over tokens."""
import sys

import torch
from torch import nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

torch.set_num_threads(1)
PAD, BOS, VOCAB, DIM, HEADS = 0, 1, 24, 24, 3


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.src_embed = nn.Embedding(VOCAB, DIM, padding_idx=PAD)
        self.tgt_embed = nn.Embedding(VOCAB, DIM, padding_idx=PAD)
        self.positions = nn.Embedding(16, DIM)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(DIM, HEADS, 48, dropout=0.0, batch_first=True, norm_first=True), 1,
            enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(DIM, HEADS, 48, dropout=0.0, batch_first=True, norm_first=True), 1)
        self.generator = nn.Linear(DIM, VOCAB)

    def forward(self, src, tgt):
        gone = src == PAD
        causal = torch.triu(torch.ones(tgt.size(1), tgt.size(1), dtype=torch.bool), 1)
        place = lambda ids: self.positions(torch.arange(ids.size(1)))
        memory = self.encoder(self.src_embed(src) + place(src), src_key_padding_mask=gone)
        out = self.decoder(self.tgt_embed(tgt) + place(tgt), memory, tgt_mask=causal,
                           tgt_key_padding_mask=tgt == PAD, memory_key_padding_mask=gone)
        return self.generator(out)


def make_pairs(count, gen):
    pairs = []
    for _ in range(count):
        n, m = torch.randint(3, 12, (2,), generator=gen).tolist()
        src = torch.randint(2, VOCAB, (n,), generator=gen)
        tgt = torch.randint(2, VOCAB, (m,), generator=gen)
        pairs.append((src, torch.cat([torch.tensor([BOS]), tgt])))
    return pairs


def collate(pairs):
    src = pad_sequence([s for s, _ in pairs], batch_first=True, padding_value=PAD)
    tgt = pad_sequence([t for _, t in pairs], batch_first=True, padding_value=PAD)
    return src, tgt[:, :-1], tgt[:, 1:]


torch.manual_seed(31)
model = Seq2Seq()
torch.save(model.state_dict(), sys.argv[1])
opt = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.98), eps=1e-6)
gen = torch.Generator().manual_seed(32)
pairs = make_pairs(60, gen)

losses = []
model.train()
for step in range(5):
    batch = pairs[step * 12:(step + 1) * 12]
    micro = [batch[i:i + 4] for i in range(0, 12, 4)]
    tokens = sum(len(t) - 1 for _, t in batch)
    opt.zero_grad()
    total = 0.0
    for part in micro:
        src, tgt_in, tgt_out = collate(part)
        logits = model(src, tgt_in)
        loss = F.cross_entropy(logits.flatten(0, 1), tgt_out.flatten(), ignore_index=PAD, reduction="sum") / tokens
        loss.backward()
        total += loss.item()
    opt.step()
    losses.append(total)
print(losses)
