# SPDX-License-Identifier: Apache-2.0
"""The same on scaled_dot_product_attention, biases made once and kept as a buffer."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

VOCAB, DIM, HEADS, SEQ = 27, 32, 4, 9


def alibi_mask(heads, size):
    powers = torch.arange(1, heads + 1) * (-8 / heads)  # <- slopes
    rate = torch.pow(2.0, powers).view(heads, 1, 1)  # <- slopes
    place = torch.arange(size)
    bias = (place.view(1, -1) - place.view(-1, 1)).float()  # <- sign
    bias = rate * bias  # <- slopes sign
    hidden = torch.ones(size, size).triu(1).bool()  # <- mask
    return bias.masked_fill(hidden, float("-inf"))  # <- mask slopes sign


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.q, self.k, self.v, self.o = (nn.Linear(DIM, DIM) for _ in range(4))
        self.up, self.down = nn.Linear(DIM, 64), nn.Linear(64, DIM)

    def forward(self, x, mask):
        b, s, _ = x.shape
        y = self.n1(x)
        q, k, v = (
            f(y).view(b, s, HEADS, -1).transpose(1, 2) for f in (self.q, self.k, self.v)
        )  # <- layout
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # <- mask scale slopes sign
        x = x + self.o(y.transpose(1, 2).reshape(b, s, DIM))
        return x + self.down(F.gelu(self.up(self.n2(x))))  # <- gelu


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.logits = nn.Embedding(VOCAB, DIM), nn.Linear(DIM, VOCAB)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.register_buffer("mask", alibi_mask(HEADS, 16), persistent=False)

    def forward(self, ids):
        x, size = self.tokens(ids), ids.shape[1]
        for block in self.blocks:
            x = block(x, self.mask[:, :size, :size])
        return self.logits(x)


def carried(old):
    new = {}
    for kind in ("weight", "bias"):
        new[f"logits.{kind}"] = old[f"head.{kind}"]
        for i in range(2):
            q, k, v = old[f"attend.{i}.qkv.{kind}"].chunk(3)  # <- layout
            new |= {f"blocks.{i}.q.{kind}": q, f"blocks.{i}.k.{kind}": k, f"blocks.{i}.v.{kind}": v}
            new[f"blocks.{i}.o.{kind}"] = old[f"attend.{i}.out.{kind}"]
            new[f"blocks.{i}.n1.{kind}"] = old[f"norms.{2 * i}.{kind}"]
            new[f"blocks.{i}.n2.{kind}"] = old[f"norms.{2 * i + 1}.{kind}"]
            new[f"blocks.{i}.up.{kind}"] = old[f"mlps.{i}.0.{kind}"]
            new[f"blocks.{i}.down.{kind}"] = old[f"mlps.{i}.2.{kind}"]
    new["tokens.weight"] = old["embed.weight"]
    return new


net = Net()
net.load_state_dict(carried(torch.load(sys.argv[1])))
adamw = torch.optim.AdamW(net.parameters(), lr=5e-3)
rng = np.random.default_rng(5)
losses = []
for _ in range(2):
    ids = torch.from_numpy(rng.integers(0, VOCAB, (3, SEQ + 1)))
    loss = F.cross_entropy(net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    adamw.zero_grad()
    loss.backward()
    adamw.step()
    losses.append(loss.item())
