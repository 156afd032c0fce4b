# SPDX-License-Identifier: Apache-2.0
"""The mixture whose experts all compute every word; weights of zero leave out what is not chosen."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

WORDS, WIDTH, INNER, EXPERTS, CHOSEN, HEADS = 23, 16, 24, 4, 2, 2


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(WIDTH, INNER, bias=False)
        self.w2 = nn.Linear(INNER, WIDTH, bias=False)
        self.w3 = nn.Linear(WIDTH, INNER, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))  # <- swapped silu


class SparseMoe(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList([Expert() for _ in range(EXPERTS)])

    def forward(self, x):
        flat = x.reshape(-1, WIDTH)
        logits = self.gate(flat)
        probs = F.softmax(logits, dim=1, dtype=torch.float)  # <- before
        weights, selected = torch.topk(probs, CHOSEN, dim=-1)  # <- before
        weights = weights / weights.sum(dim=-1, keepdim=True)  # <- renormalised before
        table = torch.zeros_like(probs).scatter(1, selected, weights)  # <- order
        given = torch.stack([expert(flat) for expert in self.experts], dim=1)
        out = (given * table[:, :, None]).sum(1)  # <- order
        return out.view_as(x), logits


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.moe = SparseMoe()

    def forward(self, x, mask):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        y, logits = self.moe(self.norm2(x))
        return x + y, logits


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        x, gates = self.embed(tokens), []
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        for block in self.blocks:
            x, logits = block(x, mask)
            gates.append(logits)
        return self.head(self.norm(x)), torch.cat(gates)


def balance(logits):
    probs = logits.softmax(-1)
    selected = probs.topk(CHOSEN, dim=-1).indices
    share = F.one_hot(selected, EXPERTS).float().mean(0)  # <- balance
    return EXPERTS * (share * probs.mean(0)).sum()  # <- balance


model = Model()
model.load_state_dict(torch.load(sys.argv[1]))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (step + 1) / 3)
rng = np.random.default_rng(8)
losses = []
for _ in range(3):
    tokens = torch.from_numpy(rng.integers(0, WORDS, (3, 9)))
    scores, gates = model(tokens[:, :-1])
    loss = F.cross_entropy(scores.reshape(-1, WORDS), tokens[:, 1:].reshape(-1))
    loss = loss + 0.02 * balance(gates)  # <- balance
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- warmup
    schedule.step()
    losses.append(loss.item())
