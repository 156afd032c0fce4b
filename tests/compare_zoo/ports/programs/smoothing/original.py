# SPDX-License-Identifier: Apache-2.0
"""A translation model with shared embeddings and smoothed labels (Vaswani et al., 2017)."""

import math
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

VOCAB, WIDTH, HEADS, PAD = 23, 16, 2, 0


def positions(length):
    place = torch.arange(length, dtype=torch.float32)[:, None]
    rate = torch.exp(torch.arange(0, WIDTH, 2) * (-math.log(10000.0) / WIDTH))  # <- positions
    table = torch.zeros(length, WIDTH)
    table[:, 0::2], table[:, 1::2] = (
        torch.sin(place * rate),
        torch.cos(place * rate),
    )  # <- positions
    return table


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH, padding_idx=PAD)
        self.core = nn.Transformer(WIDTH, HEADS, 1, 1, 32, dropout=0.0, batch_first=True)

    def forward(self, source, target):
        hidden = source == PAD  # <- unmasked
        a = self.embed(source) * math.sqrt(WIDTH) + positions(
            source.shape[1]
        )  # <- scaled positions
        b = self.embed(target) * math.sqrt(WIDTH) + positions(
            target.shape[1]
        )  # <- scaled positions
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        y = self.core(
            a, b, tgt_mask=causal, src_key_padding_mask=hidden, memory_key_padding_mask=hidden
        )  # <- unmasked
        return y @ self.embed.weight.T


torch.manual_seed(12)
model = Translator()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.98), eps=1e-9)
rng = np.random.default_rng(14)
losses = []
for _ in range(2):
    source = torch.from_numpy(rng.integers(1, VOCAB, (3, 7)))
    source[0, 5:], source[1, 4:] = PAD, PAD
    target = torch.from_numpy(rng.integers(1, VOCAB, (3, 6)))
    target[2, 4:] = PAD
    logits = model(source, target[:, :-1])
    loss = F.cross_entropy(
        logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD, label_smoothing=0.1
    )  # <- others counted
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
