# SPDX-License-Identifier: Apache-2.0
"""Sentence classifier: a pre-norm transformer in torch.nn, AdamW, clipping and warm-up cosine."""
import math
import sys

import torch
from torch import nn

VOCAB, DIM, HEADS, CLASSES, LENGTH = 40, 16, 2, 5, 10
STEPS, WARMUP, TOTAL = 5, 2, 6


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1 = nn.LayerNorm(DIM)  # <- ln_eps
        self.attn = nn.MultiheadAttention(DIM, HEADS, batch_first=True)
        self.ln2 = nn.LayerNorm(DIM)  # <- ln_eps
        self.up = nn.Linear(DIM, 4 * DIM)
        self.act = nn.GELU()  # <- gelu_form
        self.down = nn.Linear(4 * DIM, DIM)

    def forward(self, x, pad):
        h = self.ln1(x)  # <- ln_eps
        a, _ = self.attn(h, h, h, key_padding_mask=pad, need_weights=False)
        x = x + a
        h = self.up(self.ln2(x))  # <- ln_eps
        return x + self.down(self.act(h))  # <- gelu_form


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Parameter(torch.randn(LENGTH, DIM) * 0.02)
        nn.init.normal_(self.tok.weight, std=0.02)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(DIM, CLASSES)

    def forward(self, ids, lengths):
        pad = torch.arange(LENGTH)[None, :] >= lengths[:, None]
        x = self.tok(ids) + self.pos
        for block in self.blocks:
            x = block(x, pad)
        x = x.masked_fill(pad[..., None], 0.0)
        pooled = x.sum(1) / lengths[:, None]  # <- pool_length
        return self.head(pooled)


def warmup_cosine(step):
    if step < WARMUP:
        return (step + 1) / (WARMUP + 1)  # <- schedule_shift
    return 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (TOTAL - WARMUP)))


torch.manual_seed(0)
model = Classifier()
torch.save(model.state_dict(), sys.argv[1])

decay = [p for n, p in model.named_parameters() if p.ndim == 2 and n not in ("pos", "tok.weight")]
rest = [p for n, p in model.named_parameters() if p.ndim == 1 or n in ("pos", "tok.weight")]
groups = [
    {"params": decay, "weight_decay": 0.1},  # <- decay_mask
    {"params": rest, "weight_decay": 0.0},  # <- decay_mask
]
optimizer = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.98), eps=1e-6)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, warmup_cosine)  # <- schedule_shift

gen = torch.Generator().manual_seed(5)
losses = []
for _ in range(STEPS):
    ids = torch.randint(0, VOCAB, (8, LENGTH), generator=gen)
    lengths = torch.randint(3, LENGTH + 1, (8,), generator=gen)
    labels = torch.randint(0, CLASSES, (8,), generator=gen)
    loss = nn.functional.cross_entropy(model(ids, lengths), labels)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()  # <- decay_mask schedule_shift
    scheduler.step()  # <- schedule_shift
    losses.append(loss.item())
print(losses)
