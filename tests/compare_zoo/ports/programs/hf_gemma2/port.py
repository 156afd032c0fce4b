# SPDX-License-Identifier: Apache-2.0
"""Gemma 2 in own code: one product for queries, keys and values, heads in groups by einsum."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

VOCAB, DIM, FFN, DEPTH, HEADS, KV, HEAD = 41, 32, 56, 2, 4, 2, 8
WINDOW, CAP, FINAL_CAP, QUERY_SCALAR = 4, 4.0, 6.0, 24


def soft_cap(x, cap):
    return torch.tanh(x / cap) * cap


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.zeros(DIM))

    def forward(self, x):
        scaled = F.rms_norm(x, (DIM,), eps=1e-6)
        return scaled * (1 + self.gain)  # <- offset


def rotate(x):
    """(batch, time, heads, HEAD), the two numbers of a pair HEAD / 2 apart."""
    frequency = 10000.0 ** (-torch.arange(0, HEAD, 2) / HEAD)
    angle = torch.arange(x.shape[1])[:, None, None] * frequency
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def allowed(time, local):
    back = torch.arange(time)[:, None] - torch.arange(time)
    seen = back >= 0
    return seen & (back < WINDOW) if local else seen  # <- window


class Attention(nn.Module):
    def __init__(self, local):
        super().__init__()
        self.local = local
        self.qkv = nn.Linear(DIM, (HEADS + 2 * KV) * HEAD, bias=False)
        self.out = nn.Linear(HEADS * HEAD, DIM, bias=False)

    def forward(self, x):
        batch, time, _ = x.shape
        heads = self.qkv(x).view(batch, time, -1, HEAD)
        q, k, v = heads.split([HEADS, KV, KV], dim=2)
        q, k = rotate(q), rotate(k)
        q = q.view(batch, time, KV, HEADS // KV, HEAD)  # <- groups
        scores = torch.einsum("bqgrd,bkgd->bgrqk", q, k)  # <- groups
        scores = scores * QUERY_SCALAR**-0.5  # <- scale
        scores = soft_cap(scores, CAP)
        scores = scores.masked_fill(~allowed(time, self.local), -torch.inf)  # <- window
        read = torch.einsum("bgrqk,bkgd->bqgrd", scores.softmax(-1), v)  # <- groups
        return self.out(read.flatten(2))  # <- groups


class GatedFfn(nn.Module):
    def __init__(self):
        super().__init__()
        self.into = nn.Linear(DIM, 2 * FFN, bias=False)
        self.out = nn.Linear(FFN, DIM, bias=False)

    def forward(self, x):
        gate, up = self.into(x).chunk(2, dim=-1)
        return self.out(F.gelu(gate, approximate="tanh") * up)


class Block(nn.Module):
    def __init__(self, local):
        super().__init__()
        self.before_attention, self.after_attention = Norm(), Norm()
        self.before_ffn, self.after_ffn = Norm(), Norm()
        self.attention, self.ffn = Attention(local), GatedFfn()

    def forward(self, x):
        x = x + self.after_attention(self.attention(self.before_attention(x)))
        return x + self.after_ffn(self.ffn(self.before_ffn(x)))


class Gemma(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCAB, DIM)
        self.blocks = nn.ModuleList(Block(local=n % 2 == 0) for n in range(DEPTH))
        self.norm = Norm()

    def forward(self, ids):
        x = self.words(ids) * DIM**0.5
        for block in self.blocks:
            x = block(x)
        logits = self.norm(x) @ self.words.weight.T
        return soft_cap(logits, FINAL_CAP)  # <- final


NAMES = {
    "before_attention.gain": "input_layernorm.weight",
    "after_attention.gain": "post_attention_layernorm.weight",
    "before_ffn.gain": "pre_feedforward_layernorm.weight",
    "after_ffn.gain": "post_feedforward_layernorm.weight",
    "attention.out.weight": "self_attn.o_proj.weight",
    "ffn.out.weight": "mlp.down_proj.weight",
}


def converted(old):
    new = {"words.weight": old["model.embed_tokens.weight"], "norm.gain": old["model.norm.weight"]}
    for n in range(DEPTH):
        theirs = f"model.layers.{n}."
        for mine, name in NAMES.items():
            new[f"blocks.{n}.{mine}"] = old[theirs + name]
        qkv = [old[f"{theirs}self_attn.{part}_proj.weight"] for part in "qkv"]
        new[f"blocks.{n}.attention.qkv.weight"] = torch.cat(qkv)
        into = [old[f"{theirs}mlp.{part}_proj.weight"] for part in ("gate", "up")]
        new[f"blocks.{n}.ffn.into.weight"] = torch.cat(into)
    return new


gemma = Gemma()
gemma.load_state_dict(converted(torch.load(sys.argv[1])))
matrices = [w for w in gemma.parameters() if w.dim() > 1]  # <- decay
vectors = [w for w in gemma.parameters() if w.dim() == 1]  # <- decay
adam = torch.optim.AdamW(
    [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}], lr=5e-3, weight_decay=0.1
)  # <- decay
rng = np.random.default_rng(7)
losses = []
for _ in range(3):
    ids = torch.tensor(rng.integers(3, VOCAB, (3, 11)))
    logits = gemma(ids[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    adam.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(gemma.parameters(), 1.0)
    adam.step()  # <- decay
    losses.append(loss.item())
