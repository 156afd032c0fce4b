# SPDX-License-Identifier: Apache-2.0
"""A masked language model on padded batches, bidirectional, of plain modules and a tied decoder."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

PAD, MASK, WORDS, DIM, HEADS, LAYERS, BATCH, LENGTH = 0, 1, 36, 24, 4, 2, 4, 10


class Embeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.word_embeddings = nn.Embedding(WORDS, DIM, padding_idx=PAD)
        self.position_embeddings = nn.Embedding(LENGTH, DIM)
        self.token_type_embeddings = nn.Embedding(2, DIM)
        self.LayerNorm = nn.LayerNorm(DIM, eps=1e-12)

    def forward(self, ids, types):
        positions = torch.arange(ids.size(1)).unsqueeze(0)  # <- positions
        x = self.word_embeddings(ids) + self.token_type_embeddings(types)
        return self.LayerNorm(x + self.position_embeddings(positions))  # <- positions


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(DIM, DIM) for _ in range(3))
        self.dense = nn.Linear(DIM, DIM)
        self.attention_norm = nn.LayerNorm(DIM, eps=1e-12)
        self.intermediate = nn.Linear(DIM, 3 * DIM)
        self.output = nn.Linear(3 * DIM, DIM)
        self.output_norm = nn.LayerNorm(DIM, eps=1e-12)

    def split(self, x):
        return x.view(*x.shape[:2], HEADS, -1).transpose(1, 2)

    def forward(self, x, extended_mask):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = q @ k.transpose(2, 3) / (DIM // HEADS) ** 0.5 + extended_mask  # <- documents
        context = F.softmax(scores, dim=-1) @ v  # <- half documents
        context = context.transpose(1, 2).flatten(2)
        x = self.attention_norm(x + self.dense(context))
        return self.output_norm(x + self.output(F.gelu(self.intermediate(x))))


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = Embeddings()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.transform = nn.Linear(DIM, DIM)
        self.transform_norm = nn.LayerNorm(DIM, eps=1e-12)
        self.decoder_bias = nn.Parameter(torch.zeros(WORDS))  # <- left_out

    def forward(self, ids, types):
        extended_mask = (1.0 - (ids != PAD).float())[:, None, None] * -1e9  # <- documents
        x = self.embeddings(ids, types)
        for layer in self.layers:
            x = layer(x, extended_mask)
        x = self.transform_norm(F.gelu(self.transform(x)))
        return F.linear(x, self.embeddings.word_embeddings.weight, self.decoder_bias)  # <- left_out


def batch(generator):
    lengths = torch.tensor([10, 7, 5, 8])[torch.randperm(BATCH, generator=generator)]
    ids = torch.randint(2, WORDS, (BATCH, LENGTH), generator=generator)
    valid = torch.arange(LENGTH) < lengths[:, None]
    hidden = (torch.rand(BATCH, LENGTH, generator=generator) < 0.3) & valid
    hidden[:, 1] = True
    labels = ids.masked_fill(~hidden, -100)
    types = (torch.arange(LENGTH) >= lengths[:, None] // 2).long()
    return ids.masked_fill(hidden, MASK).masked_fill(~valid, PAD), types, labels


torch.manual_seed(221)
model = Bert()
with torch.no_grad():
    model.embeddings.word_embeddings.weight.mul_(0.2)
    model.decoder_bias.normal_(0.0, 0.2)
    model.transform_norm.weight.add_(0.3 * torch.randn(DIM))
torch.save(model.state_dict(), sys.argv[1])

optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, eps=1e-3, weight_decay=0.01)
generator = torch.Generator().manual_seed(222)
losses = []
for step in range(4):
    for group in optimizer.param_groups:
        group["lr"] = 2e-3 * (1 - step / 4)  # <- decayed
    ids, types, labels = batch(generator)
    logits = model(ids, types)
    loss = F.cross_entropy(logits.view(-1, WORDS), labels.view(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- decayed
    losses.append(loss.item())
