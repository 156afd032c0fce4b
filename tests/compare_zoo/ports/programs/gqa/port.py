# SPDX-License-Identifier: Apache-2.0
"""The same with the groups as an axis of einsum, one projection for q, k and v, one for gate and up."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

VOCAB, DIM, HEADS, KV, HEAD = 37, 32, 4, 2, 8


class Scale(nn.Module):
    def __init__(self, eps=1e-6):
        super().__init__()
        self.gain, self.eps = nn.Parameter(torch.ones(DIM)), eps

    def forward(self, x):
        return F.rms_norm(x, (DIM,), self.gain, self.eps)  # <- eps offset


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wqkv = nn.Linear(DIM, (HEADS + 2 * KV) * HEAD, bias=False)
        self.wo = nn.Linear(DIM, DIM, bias=False)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = self.wqkv(x).split([HEADS * HEAD, KV * HEAD, KV * HEAD], dim=-1)  # <- swapped
        q = q.reshape(b, s, KV, HEADS // KV, HEAD)  # <- repeat
        k, v = k.reshape(b, s, KV, HEAD), v.reshape(b, s, KV, HEAD)  # <- swapped
        scores = torch.einsum("bqgrd,bkgd->bgrqk", q, k) * HEAD**-0.5  # <- scale repeat swapped
        allowed = torch.ones(s, s, dtype=torch.bool).tril()  # <- mask
        scores = scores.masked_fill(~allowed, float("-inf"))  # <- mask scale
        weights = torch.softmax(scores, dim=-1)  # <- mask
        mixed = torch.einsum("bgrqk,bkgd->bqgrd", weights, v)  # <- repeat
        return self.wo(mixed.reshape(b, s, DIM))  # <- repeat


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after, self.attention = Scale(), Scale(), Attention()
        self.w13, self.w2 = nn.Linear(DIM, 96, bias=False), nn.Linear(48, DIM, bias=False)

    def forward(self, x):
        x = x + self.attention(self.before(x))
        gate, up = self.w13(self.after(x)).chunk(2, dim=-1)  # <- halves
        return x + self.w2(F.silu(gate) * up)  # <- activation halves


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.last = nn.Embedding(VOCAB, DIM), Scale()
        self.layers = nn.Sequential(Layer(), Layer())
        self.lm = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids):
        return self.lm(self.last(self.layers(self.table(ids))))


def carried(old):
    new = {"table.weight": old["embed.weight"], "last.gain": old["norm.weight"]}
    new["lm.weight"] = old["head.weight"]
    for i in range(2):
        a, b = f"layers.{i}.", f"blocks.{i}."
        new[f"{a}before.gain"], new[f"{a}after.gain"] = (
            old[f"{b}norm1.weight"],
            old[f"{b}norm2.weight"],
        )
        parts = [old[f"{b}attn.{one}_proj.weight"] for one in "qkv"]
        new[f"{a}attention.wqkv.weight"] = torch.cat(parts)
        new[f"{a}attention.wo.weight"] = old[f"{b}attn.o_proj.weight"]
        new[f"{a}w13.weight"] = torch.cat(
            [old[f"{b}gate.weight"], old[f"{b}up.weight"]]
        )  # <- halves
        new[f"{a}w2.weight"] = old[f"{b}down.weight"]
    return new


net = Net()
net.load_state_dict(carried(torch.load(sys.argv[1])))
adamw = torch.optim.AdamW(net.parameters(), lr=4e-3)
rng = np.random.default_rng(6)
losses = []
for _ in range(2):
    ids = torch.from_numpy(rng.integers(0, VOCAB, (2, 11)))
    loss = F.cross_entropy(net(ids[:, :-1]).transpose(1, 2), ids[:, 1:])
    adamw.zero_grad()
    loss.backward()
    adamw.step()
    losses.append(loss.item())
