# SPDX-License-Identifier: Apache-2.0
"""Incremental translator: cached keys and values, one position through the decoder at a time."""
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

V, D, H, INNER, DEPTH = 40, 32, 4, 48, 2
PAD, EOS, BOS, LIMIT = 0, 1, 39, 10


def position_table(n):
    angle = torch.outer(torch.arange(n).float(), 10000 ** (-torch.arange(0, D, 2) / D))
    return torch.cat((angle.sin(), angle.cos()), -1)  # <- table


class Attend(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.kv, self.o = nn.Linear(D, D), nn.Linear(D, 2 * D), nn.Linear(D, D)

    @staticmethod
    def heads(x):
        return x.unflatten(-1, (H, D // H)).transpose(1, 2)

    def memory(self, x):
        k, v = self.kv(x).chunk(2, -1)
        return self.heads(k), self.heads(v)

    def forward(self, x, k, v, mask=None):
        q = self.heads(self.q(x))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # <- crossmask
        return self.o(y.transpose(1, 2).flatten(2))


class Stage(nn.Module):
    def __init__(self, cross):
        super().__init__()
        self.att, self.att_norm = Attend(), nn.LayerNorm(D)
        self.cross = Attend() if cross else None
        self.cross_norm = nn.LayerNorm(D) if cross else None
        self.ff = nn.Sequential(nn.Linear(D, INNER), nn.SiLU(), nn.Linear(INNER, D))
        self.ff_norm = nn.LayerNorm(D)

    def forward(self, x, own, mask=None, other=None, other_mask=None):
        x = self.att_norm(x + self.att(x, *own, mask))
        if other is not None:
            x = self.cross_norm(x + self.cross(x, *other, other_mask))
        return self.ff_norm(x + self.ff(x))


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.empty(V, D))
        self.out_bias = nn.Parameter(torch.empty(V))
        self.enc = nn.ModuleList(Stage(False) for _ in range(DEPTH))
        self.dec = nn.ModuleList(Stage(True) for _ in range(DEPTH))
        self.register_buffer("places", position_table(16), persistent=False)

    def begin(self, src):
        keep = (src != PAD)[:, None, None]
        x = F.embedding(src, self.table) * D ** 0.5 + self.places[: src.shape[1]]
        for s in self.enc:
            x = s(x, s.att.memory(x), keep)
        self.cross_kv, self.cross_keep = [s.cross.memory(x) for s in self.dec], keep
        self.cache = [None] * DEPTH

    def advance(self, token, step):
        x = F.embedding(token, self.table) * math.sqrt(D)  # <- embedscale
        x = (x + self.places[step]).unsqueeze(1)  # <- offset
        for i, s in enumerate(self.dec):
            new = s.att.memory(x)
            if self.cache[i] is not None:
                new = tuple(torch.cat(pair, 2) for pair in zip(self.cache[i], new))
            self.cache[i] = new
            x = s(x, new, None, self.cross_kv[i], self.cross_keep)  # <- crossmask
        return F.linear(x[:, 0], self.table, self.out_bias)

    def translate(self, src):
        self.begin(src)
        token = src.new_full((len(src),), BOS)
        alive = torch.ones(len(src))
        total, words = torch.zeros(len(src)), torch.zeros(len(src))
        for step in range(LIMIT):
            best, token = F.log_softmax(self.advance(token, step), -1).max(-1)
            total += best * alive  # <- finished
            words += alive  # <- finished
            alive = alive * (token != EOS)
        return total / words


SHORT = (
    ("self_attn_layer_norm", "att_norm"), ("encoder_attn_layer_norm", "cross_norm"),
    ("final_layer_norm", "ff_norm"), ("self_attn", "att"), ("encoder_attn", "cross"),
    ("fc1", "ff.0"), ("fc2", "ff.2"), ("q_proj", "q"), ("out_proj", "o"),
)


def rename(sd):
    out = {"table": sd["shared.weight"], "out_bias": sd["final_logits_bias"]}
    for key, value in sd.items():
        part, _, rest = key.partition("coder.")
        if not rest:
            continue
        index, _, leaf = rest.partition(".")
        for old, new in SHORT:
            leaf = leaf.replace(old, new)
        out[f"{part}c.{index}.{leaf}"] = value
    for key in [k for k in out if "k_proj" in k]:
        k, v = out.pop(key), out.pop(key.replace("k_proj", "v_proj"))
        out[key.replace("k_proj", "kv")] = torch.cat((k, v))
    return out


net = Translator()
net.load_state_dict(rename(torch.load(sys.argv[1], weights_only=True)))
net.eval()
rng = torch.Generator().manual_seed(21)
losses = []
with torch.inference_mode():
    for _ in range(4):
        n = torch.randint(3, 9, (3, 1), generator=rng)
        src = torch.randint(2, 39, (3, 9), generator=rng)
        at = torch.arange(9)
        src = torch.where(at < n, src, torch.where(at == n, EOS, PAD))
        losses.append(net.translate(src).mean().item())
print(losses)
