# SPDX-License-Identifier: Apache-2.0
"""The labeller written out: the relative vectors of each pair of places are looked up first."""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

D, H, E, SPAN, FURTHEST, LENGTH, LABELS = 24, 3, 8, 4, 16, 12, 4


def bucket(away):
    """Offsets below half the span count one by one, the others by their logarithm."""
    half = SPAN // 2
    if abs(away) <= half:
        return away
    share = math.log(abs(away) / half) / math.log((FURTHEST - 1) / half)
    return int(math.copysign(math.ceil(share * (half - 1)) + half, away))  # <- buckets


def pair_index():
    rows = [[bucket(i - j) for j in range(LENGTH)] for i in range(LENGTH)]  # <- buckets
    return (torch.tensor(rows) + SPAN).clamp(0, 2 * SPAN - 1)  # <- buckets


class Norm(nn.LayerNorm):
    def __init__(self):
        super().__init__(D, eps=1e-7)  # <- eps

    def forward(self, x):
        return super().forward(x)  # <- eps


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.mix = (nn.Linear(D, D) for _ in range(4))
        self.wide, self.narrow = nn.Linear(D, 2 * D), nn.Linear(2 * D, D)
        self.norm_a, self.norm_b = Norm(), Norm()

    def forward(self, x, seen, relative, index):
        q, k, v = (f(x).unflatten(-1, (H, E)) for f in (self.query, self.key, self.value))
        far_q, far_k = (f(relative).unflatten(-1, (H, E)) for f in (self.query, self.key))
        scores = torch.einsum("bihe,bjhe->bhij", q, k)
        scores = scores + torch.einsum("bihe,ijhe->bhij", q, far_k[index])  # <- buckets
        scores = scores + torch.einsum("bjhe,ijhe->bhij", k, far_q[index])  # <- p2c buckets
        scores = (scores / math.sqrt(3 * E)).masked_fill(~seen[:, None, None], -math.inf)
        mixed = torch.einsum("bhij,bjhe->bihe", scores.softmax(-1), v).flatten(2)
        x = self.norm_a(x + self.mix(mixed))
        return self.norm_b(x + self.narrow(F.gelu(self.wide(x))))


class Labeller(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.kinds = nn.Embedding(60, D, padding_idx=0), nn.Embedding(2, D)
        self.relative = nn.Parameter(torch.empty(2 * SPAN, D))
        self.norm_in, self.norm_relative = Norm(), Norm()
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.out = nn.Linear(D, LABELS)
        self.index = pair_index()

    def forward(self, words, kinds, seen):
        x = self.norm_in(self.words(words) + self.kinds(kinds))  # <- types eps
        relative = self.norm_relative(self.relative)  # <- rel_norm
        for layer in self.layers:
            x = layer(x, seen, relative, self.index)  # <- rel_norm
        return self.out(x)


NAMES = {f"attention.self.{kind}_proj": kind for kind in ("query", "key", "value")} | {
    "attention.output.dense": "mix",
    "attention.output.LayerNorm": "norm_a",
    "intermediate.dense": "wide",
    "output.dense": "narrow",
    "output.LayerNorm": "norm_b",
    "embeddings.word_embeddings": "words",
    "embeddings.token_type_embeddings": "kinds",
    "embeddings.LayerNorm": "norm_in",
    "encoder.LayerNorm": "norm_relative",
    "classifier": "out",
}


def translate(name):
    stem, kind = name.removeprefix("deberta.").rsplit(".", 1)
    if stem == "encoder.rel_embeddings":
        return "relative"
    if stem.startswith("encoder.layer."):
        n, rest = stem.removeprefix("encoder.layer.").split(".", 1)
        return f"layers.{n}.{NAMES[rest]}.{kind}"
    return f"{NAMES[stem]}.{kind}"


model = Labeller()
model.load_state_dict({translate(name): t for name, t in torch.load(sys.argv[1]).items()})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
rng = torch.Generator().manual_seed(371)
place, losses = torch.arange(LENGTH), []
for _ in range(4):
    rows = []
    for _ in range(3):
        size, first = (torch.randint(*r, (), generator=rng) for r in ((7, LENGTH + 1), (2, 6)))
        words = torch.randint(1, 60, (LENGTH,), generator=rng)
        rows.append((words, torch.randint(LABELS, (LENGTH,), generator=rng), size, first))
    words, labels, sizes, firsts = map(torch.stack, zip(*rows))
    seen = place < sizes[:, None]
    kinds = ((place >= firsts[:, None]) & seen).long()  # <- types
    logits = model(words * seen, kinds, seen)
    loss = F.cross_entropy(logits[seen], labels[seen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
