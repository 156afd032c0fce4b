# SPDX-License-Identifier: Apache-2.0
"""The same encoder with one projection for query, key and value, embeddings of positions looked up
for every pair of words, the loss over picked words only, AdamW written out.
"""

import sys

import numpy as np
import torch
from torch import nn

WORDS, D, H, D_INNER, T, B, REACH = 40, 24, 3, 48, 10, 4, 4


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_weight = nn.Parameter(torch.empty(D, H, D // H))
        self.k_weight = nn.Parameter(torch.empty(D, H, D // H))
        self.v_weight = nn.Parameter(torch.empty(D, H, D // H))
        self.qkv_bias = nn.Parameter(torch.empty(3, H, D // H))
        self.merge = nn.Linear(D, D)
        self.wide, self.narrow = nn.Linear(D, D_INNER), nn.Linear(D_INNER, D)
        self.norm_a, self.norm_b = nn.LayerNorm(D), nn.LayerNorm(D)

    def project(self, x, weight, number):
        y = torch.einsum("...d,dhe->...he", x, weight)  # <- transposed relnorm absolute
        return y + self.qkv_bias[number]

    def attend(self, words, asking, visible, places, delta):
        q = self.project(asking, self.q_weight, 0)  # <- transposed absolute
        k = self.project(words, self.k_weight, 1)  # <- transposed
        v = self.project(words, self.v_weight, 2)  # <- transposed
        q_place = self.project(places, self.q_weight, 0)  # <- transposed relnorm
        k_place = self.project(places, self.k_weight, 1)  # <- transposed relnorm
        content = torch.einsum("bihe,bjhe->bhij", q, k)
        to_place = torch.einsum("bihe,ijhe->bhij", q, k_place[delta])
        from_place = torch.einsum("bjhe,ijhe->bhij", k, q_place[delta.T])  # <- direction
        scores = (content + to_place + from_place) * (3 * (D // H)) ** -0.5  # <- scale
        scores = scores + (1 - visible) * -1e9
        return torch.einsum("bhij,bjhe->bihe", scores.softmax(3), v).reshape(B, T, D)

    def forward(self, words, asking, visible, places, delta):
        x = self.merge(self.attend(words, asking, visible, places, delta))
        x = self.norm_a(asking + x)  # <- queried absolute
        return self.norm_b(x + self.narrow(nn.functional.gelu(self.wide(x))))


class MaskedWords(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Parameter(torch.empty(WORDS, D))
        self.absolute = nn.Parameter(torch.empty(T, D))
        self.relative = nn.Parameter(torch.empty(2 * REACH, D))
        self.norm_words, self.norm_places = nn.LayerNorm(D), nn.LayerNorm(D)
        self.lower, self.upper = Encoder(), Encoder()
        self.head, self.norm_head = nn.Linear(D, D), nn.LayerNorm(D)
        self.offset = nn.Parameter(torch.empty(WORDS))

    @staticmethod
    def delta():
        table = torch.zeros(T, T, dtype=torch.long)
        for i in range(T):
            for j in range(T):
                table[i, j] = min(max(i - j + REACH, 0), 2 * REACH - 1)
        return table

    def forward(self, ids):
        there = (ids != 0).float()
        x = self.norm_words(self.words[ids]) * there[..., None]
        visible = torch.einsum("bi,bj->bij", there, there)[:, None]
        places = self.norm_places(self.relative)  # <- relnorm
        delta = self.delta()
        x = self.lower(x, x, visible, places, delta)
        asking = x + self.absolute  # <- absolute
        asking = self.upper(x, asking, visible, places, delta)  # <- absolute
        asking = self.upper(x, asking, visible, places, delta)
        y = self.norm_head(nn.functional.gelu(self.head(asking)))
        return y @ self.words.T + self.offset


def encoder_of(old, theirs, mine):
    new = {}
    for letter, name in zip("qkv", ("query", "key", "value")):
        weight = old[f"{theirs}.attention.{name}_proj.weight"]
        new[f"{mine}.{letter}_weight"] = weight.T.reshape(D, H, D // H)  # <- transposed
    biases = [old[f"{theirs}.attention.{name}_proj.bias"] for name in ("query", "key", "value")]
    new[f"{mine}.qkv_bias"] = torch.stack(biases).view(3, H, D // H)
    parts = {
        "merge": "attention_dense",
        "norm_a": "attention_norm",
        "wide": "intermediate",
        "narrow": "output",
        "norm_b": "output_norm",
    }
    for part, name in parts.items():
        new[f"{mine}.{part}.weight"] = old[f"{theirs}.{name}.weight"]
        new[f"{mine}.{part}.bias"] = old[f"{theirs}.{name}.bias"]
    return new


def take_over(old):
    new = {
        "words": old["word_embeddings.weight"],
        "absolute": old["position_embeddings.weight"],
        "relative": old["rel_embeddings.weight"],
        "offset": old["head_bias"],
    }
    names = {
        "norm_words": "embeddings_norm",
        "norm_places": "rel_norm",
        "head": "head_dense",
        "norm_head": "head_norm",
    }
    for mine, theirs in names.items():
        new |= {f"{mine}.{kind}": old[f"{theirs}.{kind}"] for kind in ("weight", "bias")}
    return new | encoder_of(old, "layer.0", "lower") | encoder_of(old, "layer.1", "upper")


def sentences(rng):
    ids = torch.tensor(rng.integers(2, WORDS, (B, T)))
    hidden = torch.tensor(rng.random((B, T)) < 0.3)
    hidden[:, 0] = True
    there = torch.arange(T) < torch.tensor(rng.integers(6, T + 1, B))[:, None]
    return ids, ids.masked_fill(hidden, 1) * there, hidden & there


def adamw(named, moments, step):
    for name, p in named.items():
        if p.grad is None:
            continue
        first, second = moments[name]
        first.lerp_(p.grad, 0.1)
        second.lerp_(p.grad**2, 0.02)
        fixed = "norm" in name or "bias" in name or name == "offset"
        update = first / (1 - 0.9**step) / ((second / (1 - 0.98**step)).sqrt() + 1e-6)
        if not fixed:
            update = update + 0.1 * p.data  # <- decay
        p.data.sub_(5e-3 * update)  # <- decay
        p.grad = None


model = MaskedWords()
model.load_state_dict(take_over(torch.load(sys.argv[1])))
named = dict(model.named_parameters())
moments = {name: (torch.zeros_like(p.data), torch.zeros_like(p.data)) for name, p in named.items()}
rng = np.random.default_rng(23)
losses = []
for step in (1, 2, 3):
    truth, ids, hidden = sentences(rng)
    scores = model(ids)[hidden]  # <- ignored
    wanted = truth[hidden]  # <- ignored
    loss = nn.functional.cross_entropy(scores, wanted)  # <- ignored
    loss.backward()
    adamw(named, moments, step)
    losses.append(loss.item())
