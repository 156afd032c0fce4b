# SPDX-License-Identifier: Apache-2.0
"""Greedy continuation by a small ALiBi decoder with one shared head of keys; every new word runs the
whole text again. Three batches of prompts, padded on the left.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

PAD, WORDS, DIM, HEADS, LAYERS, BATCH, PROMPT, NEW = 0, 30, 24, 4, 2, 3, 6, 5
HEAD = DIM // HEADS


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(DIM, DIM)
        self.key_value = nn.Linear(DIM, 2 * HEAD)
        self.dense = nn.Linear(DIM, DIM)
        slopes = 2.0 ** (-8.0 * torch.arange(1, HEADS + 1) / HEADS)  # <- slopes
        self.register_buffer("slopes", slopes.view(HEADS, 1, 1), persistent=False)

    def forward(self, x, valid):
        b, s, _ = x.shape
        q = self.query(x).view(b, s, HEADS, HEAD).transpose(1, 2)
        k, v = self.key_value(x).unsqueeze(1).chunk(2, dim=-1)  # <- stale shared
        place = torch.arange(s)
        distance = (place[None, :] - place[:, None]).float()
        scores = (
            q @ k.transpose(2, 3) / HEAD**0.5 + self.slopes * distance
        )  # <- slopes stale shared
        allowed = (distance <= 0) & valid[:, None, None, :]  # <- left
        weight = scores.masked_fill(~allowed, -1e9).softmax(-1)  # <- left
        return self.dense((weight @ v).transpose(1, 2).reshape(b, s, DIM))  # <- stale shared


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_norm = nn.LayerNorm(DIM)
        self.attention = Attention()
        self.up = nn.Linear(DIM, 4 * DIM)
        self.down = nn.Linear(4 * DIM, DIM)
        self.dropout = nn.Dropout(0.1)  # <- dropped

    def forward(self, x, valid):
        h = self.input_norm(x)
        y = self.attention(h, valid) + self.down(F.gelu(self.up(h)))
        return x + self.dropout(y)  # <- dropped


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(DIM)

    def forward(self, ids):
        x = self.words(ids)
        for block in self.blocks:
            x = block(x, ids != PAD)
        return self.norm(x) @ self.words.weight.t()


torch.manual_seed(241)
model = Decoder()
with torch.no_grad():
    model.words.weight.mul_(0.3)
    for name, p in model.named_parameters():
        if "query" in name or "key_value" in name:
            p.mul_(2.0)
torch.save(model.state_dict(), sys.argv[1])

model.eval()  # <- dropped
generator = torch.Generator().manual_seed(242)
losses, texts = [], []
with torch.no_grad():
    for _ in range(3):
        ids = torch.randint(1, WORDS, (BATCH, PROMPT), generator=generator)
        missing = torch.randint(0, 3, (BATCH, 1), generator=generator)
        ids = ids.masked_fill(torch.arange(PROMPT) < missing, PAD)
        total = torch.zeros(BATCH)
        for _ in range(NEW):
            logp = model(ids)[:, -1].log_softmax(-1)
            best, word = logp[:, 1:].max(-1)
            total = total + best
            ids = torch.cat([ids, word[:, None] + 1], dim=1)
        losses.append(total.mean().item())
        texts.append(ids.tolist())
