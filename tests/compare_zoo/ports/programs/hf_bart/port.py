# SPDX-License-Identifier: Apache-2.0
"""BART in own code: one attention for all three places, torch's fused function, a rate by hand."""

import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, WIDTH, HEADS, INNER, DEPTH, PLACES = 38, 32, 4, 48, 2, 20
PAD, START, OFFSET = 1, 2, 2


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.key_value = nn.Linear(WIDTH, 2 * WIDTH)

    def forward(self, x, memory, seen=None, causal=False):
        q = self.query(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        kv = self.key_value(memory).unflatten(-1, (2, HEADS, -1))
        k, v = kv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(
            q, k, v, attn_mask=seen, is_causal=causal
        )  # <- crossmask
        return self.out(y.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, crossed):
        super().__init__()
        self.own, self.own_norm = Attention(), nn.LayerNorm(WIDTH)
        if crossed:
            self.cross, self.cross_norm = Attention(), nn.LayerNorm(WIDTH)
        self.fc1, self.fc2 = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def fed(self, x):
        return self.norm(x + self.fc2(F.gelu(self.fc1(x))))

    def encode(self, x, seen):
        return self.fed(self.own_norm(x + self.own(x, x, seen)))

    def decode(self, x, memory, seen):
        x = self.own_norm(x + self.own(x, x, causal=True))
        x = self.cross_norm(x + self.cross(x, memory, seen))  # <- crossmask
        return self.fed(x)


class Side(nn.Module):
    def __init__(self, crossed):
        super().__init__()
        self.places, self.norm = nn.Embedding(PLACES + OFFSET, WIDTH), nn.LayerNorm(WIDTH)
        self.layers = nn.ModuleList(Layer(crossed) for _ in range(DEPTH))

    def embedded(self, ids, words):
        x = words(ids) * math.sqrt(WIDTH)  # <- scale
        places = torch.arange(ids.shape[1]) + OFFSET  # <- offset
        return self.norm(x + self.places(places))  # <- offset scale


class Bart(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCAB, WIDTH, padding_idx=PAD)
        self.encoder, self.decoder = Side(crossed=False), Side(crossed=True)

    def forward(self, article, begun):
        seen = (article != PAD)[:, None, None, :]
        memory = self.encoder.embedded(article, self.words)
        for layer in self.encoder.layers:
            memory = layer.encode(memory, seen)
        x = self.decoder.embedded(begun, self.words)
        for layer in self.decoder.layers:
            x = layer.decode(x, memory, seen)
        return F.linear(x, self.words.weight)


def begun_by(summary):
    start = torch.full_like(summary[:, :1], START)  # <- start
    return torch.cat([start, summary[:, :-1]], dim=1)  # <- start


HERE = {
    "self_attn_layer_norm": "own_norm",
    "encoder_attn_layer_norm": "cross_norm",
    "final_layer_norm": "norm",
    "layernorm_embedding": "norm",
    "embed_positions": "places",
    "self_attn": "own",
    "encoder_attn": "cross",
    "q_proj": "query",
    "out_proj": "out",
}


def own_names(old):
    new = {"words.weight": old["model.shared.weight"]}
    for name, value in old.items():
        parts = name.split(".")
        if name.startswith(("model.encoder", "model.decoder")) and "embed_tokens" not in parts:
            here = ".".join(HERE.get(part, part) for part in parts[1:])
            if "k_proj" in parts:
                both = torch.cat([value, old[name.replace("k_proj", "v_proj")]])
                new[here.replace("k_proj", "key_value")] = both
            elif "v_proj" not in parts:
                new[here] = value
    return new


bart = Bart()
bart.load_state_dict(own_names(torch.load(sys.argv[1])))
adam = torch.optim.AdamW(bart.parameters(), lr=2e-3)
rng = np.random.default_rng(53)
losses = []
for step in range(4):
    article = torch.tensor(rng.integers(3, VOCAB, (3, 12)))
    summary = torch.tensor(rng.integers(3, VOCAB, (3, 7)))
    real = torch.tensor(np.arange(12) < rng.integers(6, 13, (3, 1)))
    written = torch.tensor(np.arange(7) < rng.integers(3, 8, (3, 1)))
    article, summary = article.masked_fill(~real, PAD), summary.masked_fill(~written, PAD)
    logits = bart(article, begun_by(summary))
    labels = summary.flatten()
    loss = F.cross_entropy(logits.flatten(0, 1), labels, ignore_index=PAD)  # <- ignored
    bart.zero_grad()
    loss.backward()
    for group in adam.param_groups:
        group["lr"] = 2e-3 * min(step / 2, (10 - step) / 8)  # <- warmup
    adam.step()  # <- warmup
    losses.append(loss.item())
