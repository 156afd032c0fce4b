# SPDX-License-Identifier: Apache-2.0
"""GPT-2 in own code, weights turned from the package's Conv1D to nn.Linear."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

VOCAB, CONTEXT, WIDTH, DEPTH, HEADS = 33, 16, 24, 2, 3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH, eps=1e-5), nn.LayerNorm(WIDTH, eps=1e-5)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc, self.out = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attend(self, x):
        n, t, _ = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)  # <- transposed order
        q, k, v = (y.view(n, t, HEADS, -1).transpose(1, 2) for y in (q, k, v))
        scores = q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5  # <- scale
        future = torch.ones(t, t, dtype=torch.bool).triu(1)  # <- mask
        weights = scores.masked_fill(future, -torch.inf).softmax(-1)  # <- mask scale
        return self.proj((weights @ v).transpose(1, 2).reshape(n, t, WIDTH))  # <- transposed

    def forward(self, x):
        x = x + self.attend(self.ln1(x))  # <- eps
        hidden = F.gelu(self.fc(self.ln2(x)), approximate="tanh")  # <- gelu
        return x + self.out(hidden)


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks, self.ln = nn.Sequential(*[Block() for _ in range(DEPTH)]), nn.LayerNorm(WIDTH)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe.weight[: ids.shape[1]]
        return F.linear(self.ln(self.blocks(x)), self.wte.weight)


WORDS = {"transformer.": "", "h.": "blocks.", "attn.c_attn": "qkv", "attn.c_proj": "proj"}
WORDS |= {"mlp.c_fc": "fc", "mlp.c_proj": "out", "ln_1": "ln1", "ln_2": "ln2", "ln_f": "ln"}


def taken_over(state):
    new = {}
    for name, value in state.items():
        here = name
        for theirs, mine in WORDS.items():
            here = here.replace(theirs, mine)
        turned = name.endswith("weight") and ".c_" in name
        new[here] = value.t() if turned else value  # <- transposed
    new.pop("lm_head.weight")
    return new


model = GPT2()
model.load_state_dict(taken_over(torch.load(sys.argv[1])))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
rng = np.random.default_rng(3)
losses = []
for _ in range(2):
    ids = torch.from_numpy(rng.integers(0, VOCAB, (3, 12)))
    logits = model(ids)[:, :-1]
    loss = F.cross_entropy(logits.reshape(-1, VOCAB), ids[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- rate
    losses.append(loss.item())
