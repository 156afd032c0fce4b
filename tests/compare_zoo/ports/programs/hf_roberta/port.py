# SPDX-License-Identifier: Apache-2.0
"""RoBERTa on torch's own encoder layers, filled from the package's checkpoint."""

import sys

import numpy as np
import torch
from torch import nn

VOCAB, WIDTH, HEADS, INNER, DEPTH, PLACES, KINDS = 36, 32, 4, 64, 2, 20, 3
FIRST, PAD, EPS = 0, 1, 1e-5


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.types = nn.Embedding(VOCAB, WIDTH, PAD), nn.Embedding(1, WIDTH)
        self.places = nn.Embedding(PLACES, WIDTH, PAD)
        self.norm = nn.LayerNorm(WIDTH, eps=EPS)
        layer = nn.TransformerEncoderLayer(
            d_model=WIDTH,
            nhead=HEADS,
            dim_feedforward=INNER,
            dropout=0.0,
            activation="gelu",
            layer_norm_eps=EPS,
            batch_first=True,
            norm_first=False,
        )  # <- activation normfirst
        self.layers = nn.TransformerEncoder(layer, DEPTH, enable_nested_tensor=False)
        self.dense, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, KINDS)

    def forward(self, ids):
        absent = ids == PAD
        places = (~absent).cumsum(1) * ~absent + PAD  # <- places
        x = self.words(ids) + self.places(places) + self.types.weight[0]  # <- places
        x = self.layers(self.norm(x), src_key_padding_mask=absent)  # <- activation normfirst order
        return self.out(torch.tanh(self.dense(x[:, 0])))  # <- pooled


def layer_state(old, n):
    theirs, mine = f"roberta.encoder.layer.{n}.", f"layers.layers.{n}."
    new = {}
    for kind in ("weight", "bias"):
        q, k, v = (
            old[f"{theirs}attention.self.{part}.{kind}"] for part in ("query", "key", "value")
        )
        new[f"{mine}self_attn.in_proj_{kind}"] = torch.cat([q, k, v])  # <- order
        new[f"{mine}self_attn.out_proj.{kind}"] = old[f"{theirs}attention.output.dense.{kind}"]
        new[f"{mine}norm1.{kind}"] = old[f"{theirs}attention.output.LayerNorm.{kind}"]
        new[f"{mine}linear1.{kind}"] = old[f"{theirs}intermediate.dense.{kind}"]
        new[f"{mine}linear2.{kind}"] = old[f"{theirs}output.dense.{kind}"]
        new[f"{mine}norm2.{kind}"] = old[f"{theirs}output.LayerNorm.{kind}"]
    return new


def state(old):
    embeddings = "roberta.embeddings."
    new = {
        "words.weight": old[embeddings + "word_embeddings.weight"],
        "types.weight": old[embeddings + "token_type_embeddings.weight"],
        "places.weight": old[embeddings + "position_embeddings.weight"],
    }
    for kind in ("weight", "bias"):
        new[f"norm.{kind}"] = old[f"{embeddings}LayerNorm.{kind}"]
        new[f"dense.{kind}"] = old[f"classifier.dense.{kind}"]
        new[f"out.{kind}"] = old[f"classifier.out_proj.{kind}"]
    for n in range(DEPTH):
        new |= layer_state(old, n)
    return new


classifier = Classifier()
classifier.load_state_dict(state(torch.load(sys.argv[1])))
adam = torch.optim.AdamW(classifier.parameters(), lr=1e-3, weight_decay=0.1)  # <- coupled
measure = nn.CrossEntropyLoss()
rng = np.random.default_rng(79)
losses = []
for _ in range(3):
    ids = torch.tensor(rng.integers(3, VOCAB, (4, 12)))
    real = torch.tensor(np.arange(12) < rng.integers(5, 13, (4, 1)))
    ids[:, 0] = FIRST
    ids[~real] = PAD
    kinds = torch.tensor(rng.integers(0, KINDS, 4))
    loss = measure(classifier(ids), kinds)
    adam.zero_grad()
    loss.backward()
    adam.step()  # <- coupled
    losses.append(loss.item())
