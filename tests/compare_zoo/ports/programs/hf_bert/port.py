# SPDX-License-Identifier: Apache-2.0
"""BERT in own code, with torch's fused attention, from the package's checkpoint."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

VOCAB, WIDTH, HEADS, DEPTH, INNER, EPS = 33, 24, 3, 2, 40, 1e-12


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, eps=EPS), nn.LayerNorm(WIDTH, eps=EPS)

    def forward(self, x, seen):
        heads = (f(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(*heads, attn_mask=seen)  # <- padding
        y = self.o(y.transpose(1, 2).flatten(2))
        x = self.norm1(x + y)  # <- pre_norm
        return self.norm2(x + self.down(F.gelu(self.up(x))))  # <- gelu


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.types = nn.Embedding(VOCAB, WIDTH), nn.Embedding(2, WIDTH)
        self.places = nn.Embedding(16, WIDTH)
        self.norm, self.head_norm = nn.LayerNorm(WIDTH, eps=EPS), nn.LayerNorm(WIDTH, eps=EPS)
        self.layers = nn.ModuleList(Layer() for _ in range(DEPTH))
        self.head, self.bias = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.zeros(VOCAB))

    def forward(self, ids, mask):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        x = x + self.types.weight[0]  # <- types
        x = self.norm(x)  # <- eps
        for layer in self.layers:
            x = layer(x, mask[:, None, None].bool())  # <- padding
        x = self.head_norm(F.gelu(self.head(x)))
        return x @ self.words.weight.t() + self.bias


WORDS = {
    "bert.embeddings.word_embeddings": "words",
    "bert.embeddings.position_embeddings": "places",
    "bert.embeddings.token_type_embeddings": "types",
    "bert.embeddings.LayerNorm": "norm",
    "bert.encoder.layer": "layers",
    "attention.self.query": "q",
    "attention.self.key": "k",
    "attention.self.value": "v",
    "attention.output.dense": "o",
    "attention.output.LayerNorm": "norm1",
    "intermediate.dense": "up",
    "output.dense": "down",
    "output.LayerNorm": "norm2",
    "cls.predictions.transform.dense": "head",
    "cls.predictions.transform.LayerNorm": "head_norm",
    "cls.predictions.bias": "bias",
}


def taken_over(state, wanted):
    new = {}
    for name, value in state.items():
        here = name
        for theirs, mine in WORDS.items():
            here = here.replace(theirs, mine)
        if here in wanted:
            new[here] = value
    return new


model = Bert()
model.load_state_dict(taken_over(torch.load(sys.argv[1]), model.state_dict()))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
rng = np.random.default_rng(3)
losses = []
for _ in range(2):
    ids = torch.from_numpy(rng.integers(1, VOCAB, (3, 12)))
    mask = torch.from_numpy((np.arange(12) < rng.integers(6, 13, (3, 1))).astype(np.int64))
    labels = torch.where((ids % 3 == 0) & (mask > 0), ids, -100)  # <- ignored
    loss = F.cross_entropy(model(ids, mask).flatten(0, 1), labels.flatten())  # <- ignored
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- rate
    losses.append(loss.item())
