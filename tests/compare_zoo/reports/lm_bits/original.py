# SPDX-License-Identifier: Apache-2.0
"""Character language model (two pre-norm blocks); prints the perplexity of each batch."""
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(12)
V, D, H, T = 40, 32, 4, 20


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.q, self.k, self.v = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D)
        self.o = nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x):
        b, t, _ = x.shape
        h = self.ln1(x)
        q, k, v = (f(h).view(b, t, H, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        att = q @ k.transpose(-2, -1) / math.sqrt(D // H)
        mask = torch.ones(t, t, dtype=torch.bool).tril()
        att = att.masked_fill(~mask, float("-inf")).softmax(-1)
        x = x + self.o((att @ v).transpose(1, 2).reshape(b, t, D))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class CharLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(V, D), nn.Embedding(T, D)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.ln = nn.LayerNorm(D)
        self.head = nn.Linear(D, V, bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


lm = CharLM()
with torch.no_grad():
    for name, p in lm.named_parameters():
        if "ln" in name:
            p.add_(torch.randn_like(p) * 0.2)
torch.save(lm.state_dict(), sys.argv[1])
lm.eval()

gen = torch.Generator().manual_seed(102)
losses = []
with torch.no_grad():
    for i in range(4):
        ids = torch.randint(0, V, (6, T + 1), generator=gen)
        logits = lm(ids[:, :-1])
        nll = F.cross_entropy(logits.reshape(-1, V), ids[:, 1:].reshape(-1))
        losses.append(math.exp(nll.item()))
        print(f"batch {i}  ppl {losses[-1]:.3f}")
print(losses)
