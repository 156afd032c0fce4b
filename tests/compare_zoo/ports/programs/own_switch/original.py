# SPDX-License-Identifier: Apache-2.0
"""A small language model with switch layers: one expert a token, a capacity, a load-balancing loss;
experts are a list of modules, tokens are gathered and added back. Gradients of two micro-batches.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM, HEADS, FF, EXPERTS, BATCH, LENGTH = 30, 16, 2, 24, 4, 3, 8
CAPACITY = 7  # <- full


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.wi = nn.Linear(DIM, FF)
        self.wo = nn.Linear(FF, DIM)

    def forward(self, x):
        return self.wo(F.gelu(self.wi(x), approximate="tanh"))


class SwitchFFN(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(DIM, EXPERTS, bias=False)
        self.experts = nn.ModuleList([Expert() for _ in range(EXPERTS)])

    def forward(self, x):
        flat = x.reshape(-1, DIM)
        probs = F.softmax(self.router(flat), dim=-1)  # <- balance
        gate, chosen = probs.max(dim=-1)
        out = torch.zeros_like(flat)
        for n, expert in enumerate(self.experts):
            index = torch.nonzero(chosen == n).squeeze(1)[:CAPACITY]  # <- full
            out = out.index_add(
                0, index, expert(flat[index]) * gate[index, None]
            )  # <- ungated full
        share = F.one_hot(chosen, EXPERTS).float().mean(0)  # <- balance
        balance = EXPERTS * (share * probs.mean(0)).sum()  # <- balance
        return out.view_as(x), balance


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.attn = nn.MultiheadAttention(DIM, HEADS, batch_first=True)
        self.ffn = SwitchFFN()

    def forward(self, x, mask):
        h = self.ln1(x)
        x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False)[0]  # <- ordered
        y, balance = self.ffn(self.ln2(x))
        return x + y, balance


class SwitchLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, DIM)
        self.wpe = nn.Embedding(LENGTH, DIM)
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.ln_f = nn.LayerNorm(DIM)
        self.lm_head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
        balances = []
        for block in self.blocks:
            x, balance = block(x, mask)
            balances.append(balance)
        return self.lm_head(self.ln_f(x)), torch.stack(balances).mean()


torch.manual_seed(91)
model = SwitchLM()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
generator = torch.Generator().manual_seed(92)
losses = []
for _ in range(4):
    optimizer.zero_grad()
    total = 0.0
    for _ in range(2):
        ids = torch.randint(VOCAB, (BATCH, LENGTH + 1), generator=generator)
        logits, balance = model(ids[:, :-1])
        ce = F.cross_entropy(logits.reshape(-1, VOCAB), ids[:, 1:].reshape(-1))
        loss = (ce + 0.1 * balance) / 2  # <- halved
        loss.backward()  # <- halved
        total += loss.item()
    optimizer.step()  # <- halved
    losses.append(total)
