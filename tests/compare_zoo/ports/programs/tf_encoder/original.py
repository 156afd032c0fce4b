# SPDX-License-Identifier: Apache-2.0
"""A post-norm transformer encoder that sorts padded token sequences into classes; AdamW."""

import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, EMBED, HEADS, INNER, LENGTH, CLASSES, BATCH = 30, 16, 4, 32, 8, 3, 6


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(EMBED, HEADS, batch_first=True)
        self.norm1 = nn.LayerNorm(EMBED)  # <- ln_eps
        self.fc1 = nn.Linear(EMBED, INNER)
        self.fc2 = nn.Linear(INNER, EMBED)
        self.norm2 = nn.LayerNorm(EMBED)  # <- ln_eps

    def forward(self, x, padding):
        attended, _ = self.attn(
            x, x, x, key_padding_mask=padding, need_weights=False
        )  # <- mask split
        x = self.norm1(x + attended)  # <- ln_eps
        hidden = F.gelu(self.fc1(x))
        return self.norm2(x + self.fc2(hidden))  # <- ln_eps


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, EMBED)
        self.positions = nn.Embedding(LENGTH, EMBED)
        self.layers = nn.ModuleList([Layer() for _ in range(2)])
        self.head = nn.Linear(EMBED, CLASSES)

    def forward(self, ids):
        padding = ids.eq(0)  # <- mask
        x = self.tokens(ids) * math.sqrt(EMBED)  # <- unscaled
        x = x + self.positions.weight  # <- unscaled
        for layer in self.layers:
            x = layer(x, padding)
        keep = (~padding).float().unsqueeze(-1)  # <- pool
        pooled = (x * keep).sum(1) / keep.sum(1)  # <- pool
        return self.head(pooled)


torch.manual_seed(8)
model = Encoder()
with torch.no_grad():
    nn.init.normal_(model.tokens.weight, std=0.02)
    nn.init.normal_(model.positions.weight, std=0.02)
    for layer in model.layers:
        layer.attn.out_proj.weight.mul_(0.2)
        layer.attn.in_proj_weight.mul_(2.0)
        layer.fc1.weight.mul_(3.0)
        nn.init.normal_(layer.attn.in_proj_bias, std=0.3)
np.savez(sys.argv[1], **{k: v.detach().numpy() for k, v in model.named_parameters()})

optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.01)
rng = np.random.RandomState(81)
losses = []
for _ in range(3):
    ids = rng.randint(1, VOCAB, (BATCH, LENGTH))
    lengths = rng.randint(2, LENGTH + 1, BATCH)
    ids[np.arange(LENGTH)[None] >= lengths[:, None]] = 0
    labels = ids[:, 0] % CLASSES
    loss = F.cross_entropy(model(torch.from_numpy(ids)), torch.from_numpy(labels))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(losses)
