# SPDX-License-Identifier: Apache-2.0
"""The same GPT with its blocks written out."""

import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM, HEADS, DEPTH, CONTEXT = 31, 32, 4, 2, 12


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(DIM, DIM)
        self.k_proj = nn.Linear(DIM, DIM)
        self.v_proj = nn.Linear(DIM, DIM)
        self.out_proj = nn.Linear(DIM, DIM)

    def split_heads(self, x):
        B, T, _ = x.shape
        return x.view(B, T, HEADS, DIM // HEADS).transpose(1, 2)

    def forward(self, x):
        B, T, _ = x.shape
        q = self.split_heads(self.q_proj(x))
        k = self.split_heads(self.k_proj(x))
        v = self.split_heads(self.v_proj(x))  # <- values
        scores = q @ k.transpose(-2, -1) / math.sqrt(DIM // HEADS)
        future = torch.ones(T, T, dtype=torch.bool).triu(1)  # <- mask
        scores = scores.masked_fill(future, float("-inf"))  # <- mask
        out = scores.softmax(dim=-1) @ v
        out = out.transpose(1, 2).reshape(B, T, DIM)  # <- heads
        return self.out_proj(out)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1 = nn.LayerNorm(DIM)
        self.attn = Attention()
        self.ln2 = nn.LayerNorm(DIM)
        self.fc1 = nn.Linear(DIM, 4 * DIM)
        self.fc2 = nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        y = self.ln2(x)
        return x + self.fc2(F.gelu(self.fc1(y)))  # <- gelu residual


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, DIM)
        self.wpe = nn.Embedding(CONTEXT, DIM)
        self.blocks = nn.ModuleList([Block() for _ in range(DEPTH)])
        self.ln_f = nn.LayerNorm(DIM)

    def forward(self, idx):
        x = self.wte(idx) + self.wpe.weight[: idx.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)  # <- tied


def convert(state):
    new = {
        "wte.weight": state["tok_emb.weight"],
        "wpe.weight": state["pos_emb.weight"],
        "ln_f.weight": state["encoder.norm.weight"],
        "ln_f.bias": state["encoder.norm.bias"],
    }
    names = {
        "ln1": "norm1",
        "ln2": "norm2",
        "fc1": "linear1",
        "fc2": "linear2",
        "attn.out_proj": "self_attn.out_proj",
    }
    for i in range(DEPTH):
        old = f"encoder.layers.{i}"
        for kind in ["weight", "bias"]:
            for ours, theirs in names.items():
                new[f"blocks.{i}.{ours}.{kind}"] = state[f"{old}.{theirs}.{kind}"]
            q, k, v = state[f"{old}.self_attn.in_proj_{kind}"].chunk(3)
            new[f"blocks.{i}.attn.q_proj.{kind}"] = q
            new[f"blocks.{i}.attn.k_proj.{kind}"] = k
            new[f"blocks.{i}.attn.v_proj.{kind}"] = v  # <- values
    return new


model = GPT()
model.load_state_dict(convert(torch.load(sys.argv[1])))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1)
tokens = torch.from_numpy(np.random.default_rng(1).integers(0, VOCAB, (4, 6, CONTEXT + 1)))
losses = []
for batch in tokens:
    optimizer.zero_grad()
    logits = model(batch[:, :-1])
    loss = F.cross_entropy(logits.transpose(1, 2), batch[:, 1:])
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
