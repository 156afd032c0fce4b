# SPDX-License-Identifier: Apache-2.0
"""Longformer (Beltagy et al., 2020) with its attention as a mask over all pairs: a window around each
token, a few tokens that see and are seen by all through projections of their own, masked words.
"""

import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM, HEADS, HIDDEN, LAYERS, WINDOW, GLOBAL, PAD = 41, 16, 2, 24, 2, 2, 2, 1
BATCH, LENGTH = 3, 14


class LongformerSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(DIM, DIM) for _ in range(3))
        self.query_global, self.key_global, self.value_global = (
            nn.Linear(DIM, DIM) for _ in range(3)
        )

    def split(self, x):
        return x.view(*x.shape[:2], HEADS, DIM // HEADS).transpose(1, 2)

    def forward(self, x, attended):
        n = x.shape[1]
        place = torch.arange(n)
        near = (place[:, None] - place[None, :]).abs() <= WINDOW  # <- window
        visible = near | (place < GLOBAL)[None, :]  # <- twice window
        hidden = ~(visible[None, None] & attended[:, None, None, :])
        q = self.split(self.query(x)) / math.sqrt(DIM // HEADS)
        scores = q @ self.split(self.key(x)).transpose(-1, -2)
        probs = scores.masked_fill(hidden, -torch.inf).softmax(dim=-1)
        context = probs @ self.split(self.value(x))
        q = self.split(self.query_global(x[:, :GLOBAL])) / math.sqrt(DIM // HEADS)  # <- own scaled
        scores = q @ self.split(self.key_global(x)).transpose(-1, -2)  # <- scaled
        scores = scores.masked_fill(~attended[:, None, None, :], -torch.inf)  # <- padding
        everywhere = scores.softmax(dim=-1) @ self.split(self.value_global(x))
        context = torch.cat([everywhere, context[:, :, GLOBAL:]], dim=2)
        return context.transpose(1, 2).reshape(x.shape)


class LongformerLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn, self.output = LongformerSelfAttention(), nn.Linear(DIM, DIM)
        self.attn_norm, self.norm = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.intermediate, self.dense = nn.Linear(DIM, HIDDEN), nn.Linear(HIDDEN, DIM)

    def forward(self, x, attended):
        x = self.attn_norm(self.output(self.self_attn(x, attended)) + x)
        return self.norm(self.dense(F.gelu(self.intermediate(x))) + x)  # <- residual


class LongformerForMaskedLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.word_embeddings = nn.Embedding(VOCAB, DIM, padding_idx=PAD)
        self.position_embeddings = nn.Embedding(LENGTH + PAD + 1, DIM, padding_idx=PAD)
        self.norm = nn.LayerNorm(DIM)
        self.layers = nn.ModuleList(LongformerLayer() for _ in range(LAYERS))
        self.head_dense, self.head_norm = nn.Linear(DIM, DIM), nn.LayerNorm(DIM)
        self.head_bias = nn.Parameter(torch.zeros(VOCAB))

    def forward(self, ids):
        attended = ids != PAD
        positions = attended.long().cumsum(dim=1) * attended + PAD  # <- places
        x = self.word_embeddings(ids) + self.position_embeddings(positions)  # <- places
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x, attended)
        x = self.head_norm(F.gelu(self.head_dense(x)))  # <- head
        return F.linear(x, self.word_embeddings.weight, self.head_bias)


torch.manual_seed(199)
model = LongformerForMaskedLM()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, eps=1e-6, weight_decay=0.01)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: max(0.0, 1 - n / 4))
rng = np.random.default_rng(211)
losses = []
for _ in range(3):
    words = torch.from_numpy(rng.integers(3, VOCAB, (BATCH, LENGTH)))
    lengths = torch.from_numpy(rng.integers(8, LENGTH + 1, (BATCH, 1)))
    chosen = torch.from_numpy(rng.random((BATCH, LENGTH)) < 0.3)
    there = torch.arange(LENGTH) < lengths
    ids = torch.where(chosen, 2, words).masked_fill(~there, PAD)
    labels = torch.where(chosen & there, words, -100)  # <- ignored
    logits = model(ids)
    loss = F.cross_entropy(logits.view(-1, VOCAB), labels.view(-1))  # <- ignored
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- schedule
    scheduler.step()  # <- schedule
    losses.append(loss.item())
