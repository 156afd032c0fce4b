# SPDX-License-Identifier: Apache-2.0
"""The same with complex rotation, SDPA, and the projections taken apart."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

VOCAB, DIM, HEADS, HEAD, ROTARY = 33, 32, 4, 8, 4


def turn(x, angles):
    """x: batch, time, heads, size; the first ROTARY numbers of a head as (real, imaginary) halves."""
    part, rest = x[..., :ROTARY], x[..., ROTARY:]  # <- partial
    real, imaginary = part[..., : ROTARY // 2], part[..., ROTARY // 2 :]  # <- partial rotation
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]  # <- base
    a = real * cos - imaginary * sin  # <- rotation base partial
    b = imaginary * cos + real * sin  # <- rotation base partial
    return torch.cat((a, b, rest), -1)  # <- partial rotation


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.q, self.k, self.v, self.o = (nn.Linear(DIM, DIM) for _ in range(4))
        self.mlp = nn.Sequential(nn.Linear(DIM, 64), nn.GELU(), nn.Linear(64, DIM))

    def forward(self, x, angles):
        y = self.ln1(x)
        q, k, v = (f(y).unflatten(-1, (HEADS, HEAD)) for f in (self.q, self.k, self.v))  # <- layout
        q, k = turn(q, angles), turn(k, angles)
        q, k, v = (one.transpose(1, 2) for one in (q, k, v))  # <- layout
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = self.o(y.transpose(1, 2).flatten(2))
        return x + y + self.mlp(self.ln2(x))  # <- sequential shared


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.blocks = nn.Embedding(VOCAB, DIM), nn.ModuleList([Block(), Block()])
        self.ln, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids):
        steps = torch.arange(0, ROTARY, 2) / ROTARY
        angles = torch.arange(ids.shape[1])[:, None] * torch.pow(10000.0, -steps)  # <- base
        x = self.table(ids)
        for block in self.blocks:
            x = block(x, angles)
        return self.head(self.ln(x))


def carried(old):
    new = {"table.weight": old["embed_in.weight"], "head.weight": old["embed_out.weight"]}
    for kind in ("weight", "bias"):
        new[f"ln.{kind}"] = old[f"final.{kind}"]
        for i in range(2):
            a, b = f"blocks.{i}.", f"layers.{i}."
            fused = old[f"{b}attention.query_key_value.{kind}"]
            q, k, v = fused.unflatten(0, (HEADS, 3, HEAD)).unbind(1)  # <- layout
            for name, part in (("q", q), ("k", k), ("v", v)):
                new[f"{a}{name}.{kind}"] = part.flatten(0, 1)
            new[f"{a}o.{kind}"] = old[f"{b}attention.dense.{kind}"]
            new[f"{a}ln1.{kind}"] = old[f"{b}input_layernorm.{kind}"]
            new[f"{a}ln2.{kind}"] = old[f"{b}post_layernorm.{kind}"]
            new[f"{a}mlp.0.{kind}"], new[f"{a}mlp.2.{kind}"] = (
                old[f"{b}up.{kind}"],
                old[f"{b}down.{kind}"],
            )
    return new


net = Net()
net.load_state_dict(carried(torch.load(sys.argv[1])))
adamw = torch.optim.AdamW(net.parameters(), lr=3e-3)
rng = np.random.default_rng(8)
losses = []
for _ in range(2):
    ids = torch.from_numpy(rng.integers(0, VOCAB, (2, 10)))
    loss = F.cross_entropy(net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    adamw.zero_grad()
    loss.backward()
    adamw.step()
    losses.append(loss.item())
