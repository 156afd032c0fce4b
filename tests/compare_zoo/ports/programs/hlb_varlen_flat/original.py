# SPDX-License-Identifier: Apache-2.0
"""Padded transformer tagger: key padding mask, ignore_index, batch-first."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, DIM, HEADS, TAGS, MAXLEN = 50, 24, 3, 7, 14


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1 = nn.LayerNorm(DIM)
        self.attn = nn.MultiheadAttention(DIM, HEADS, batch_first=True)
        self.ln2 = nn.LayerNorm(DIM)
        self.fc1 = nn.Linear(DIM, 2 * DIM)
        self.fc2 = nn.Linear(2 * DIM, DIM)

    def forward(self, x, pad):
        h = self.ln1(x)
        x = x + self.attn(h, h, h, key_padding_mask=pad, need_weights=False)[0]  # <- leak
        return x + self.fc2(F.gelu(self.fc1(self.ln2(x))))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, DIM, padding_idx=0)
        self.pos = nn.Embedding(MAXLEN, DIM)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.out = nn.Linear(DIM, TAGS)

    def forward(self, ids):
        pad = ids == 0  # <- leak
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))  # <- positions
        for b in self.blocks:
            x = b(x, pad)
        return self.out(x)


def collate(seqs):
    ids = nn.utils.rnn.pad_sequence([s for s, _ in seqs], batch_first=True, padding_value=0)
    tags = nn.utils.rnn.pad_sequence([t for _, t in seqs], batch_first=True, padding_value=-100)
    return ids, tags


def sample(gen, n=9):
    lens = torch.randint(3, MAXLEN + 1, (n,), generator=gen).tolist()
    seqs = [torch.randint(1, VOCAB, (k,), generator=gen) for k in lens]
    return [(s, (s + s.roll(1)) % TAGS) for s in seqs]  # <- roll


torch.manual_seed(0)
model = Tagger()
torch.save(model.state_dict(), sys.argv[1])
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.02, eps=1e-6)  # <- coupled
gen = torch.Generator().manual_seed(4)

losses = []
for step in range(4):
    ids, tags = collate(sample(gen))
    loss = F.cross_entropy(model(ids).flatten(0, 1), tags.flatten(),  # <- per_pad
                           ignore_index=-100)  # <- per_pad
    opt.zero_grad()
    loss.backward()
    opt.step()  # <- coupled
    losses.append(loss.item())

print(losses)
