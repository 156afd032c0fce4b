# SPDX-License-Identifier: Apache-2.0
"""The same mixture with all experts in one tensor: every expert computes every word, a dense table
of weights puts to zero what was not chosen.
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

WORDS, WIDTH, INNER, EXPERTS, CHOSEN, HEADS = 23, 16, 24, 4, 2, 2


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_up = nn.Parameter(torch.empty(EXPERTS, WIDTH, 2 * INNER).normal_(std=0.02))
        self.down = nn.Parameter(torch.empty(EXPERTS, INNER, WIDTH).normal_(std=0.02))

    def forward(self, x):
        hidden = torch.einsum("nd,edh->enh", x, self.gate_up)
        gate, up = hidden.split(INNER, dim=-1)  # <- swapped
        return torch.bmm(gate * gate.sigmoid() * up, self.down)  # <- swapped silu


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = Experts()

    def forward(self, x):
        flat = x.flatten(0, 1)
        logits = self.router(flat)
        best, index = logits.topk(CHOSEN)  # <- before
        weights = best.softmax(-1)  # <- before renormalised
        dense = torch.zeros_like(logits).scatter(1, index, weights)  # <- order renormalised
        out = torch.einsum("ne,end->nd", dense, self.experts(flat))  # <- order
        return out.unflatten(0, x.shape[:2]), logits


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT * (WIDTH // HEADS) ** -0.5
        keep = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        weights = scores.masked_fill(~keep, -torch.inf).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first_norm, self.second_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.mixture = SelfAttention(), Mixture()

    def forward(self, x):
        x = x + self.attention(self.first_norm(x))
        y, logits = self.mixture(self.second_norm(x))
        return x + y, logits


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList([Layer() for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        x, kept = self.embed(tokens), []
        for layer in self.layers:
            x, logits = layer(x)
            kept.append(logits)
        return self.head(self.norm(x)), kept


def mapped(old):
    new = {}
    for name, value in old.items():
        name_here = name.replace("blocks", "layers").replace("moe.gate", "mixture.router")
        name_here = name_here.replace("norm1", "first_norm").replace("norm2", "second_norm")
        name_here = name_here.replace("attention.in_proj_", "attention.qkv.")
        name_here = name_here.replace("attention.out_proj", "attention.out")
        if "experts" not in name:
            new[name_here] = value
    for layer in range(2):
        theirs, mine = f"blocks.{layer}.moe.experts", f"layers.{layer}.mixture.experts"
        w1, w2, w3 = (
            torch.stack([old[f"{theirs}.{e}.{w}.weight"].t() for e in range(EXPERTS)])
            for w in ("w1", "w2", "w3")
        )
        new[f"{mine}.gate_up"] = torch.cat((w1, w3), dim=-1)  # <- swapped
        new[f"{mine}.down"] = w2
    return new


def balancing(kept):
    probs = torch.cat(kept).softmax(dim=-1)
    chosen = torch.zeros_like(probs).scatter_(1, probs.topk(CHOSEN)[1], 1.0)
    return EXPERTS * torch.dot(chosen.mean(0) / 1, probs.mean(0))  # <- balance


model = Transformer()
model.load_state_dict(mapped(torch.load(sys.argv[1])))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
rng = np.random.default_rng(8)
losses = []
for step in range(3):
    for group in optimizer.param_groups:
        group["lr"] = 2e-3 * (step + 1) / 3
    tokens = torch.tensor(rng.integers(0, WORDS, (3, 9)))
    scores, kept = model(tokens[:, :-1])
    main = F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
    loss = main + 0.02 * balancing(kept)  # <- balance
    model.zero_grad()
    loss.backward()
    optimizer.step()  # <- warmup
    losses.append(loss.item())
