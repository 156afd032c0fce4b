# SPDX-License-Identifier: Apache-2.0
"""A small GLM in the manner of its authors: time first, one projection for queries, keys and
values, neighbours rotated, shared keys tiled over the heads; it is tuned on answers only.
"""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM, HEADS, GROUPS, HEAD, ROTARY, INNER, LENGTH, BATCH = 50, 32, 4, 2, 8, 2, 40, 12, 3
STEPS, WARMUP = 5, 2


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(1 + 0.2 * torch.randn(DIM))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


def rotated(x, table):
    turned, kept = x[..., :ROTARY], x[..., ROTARY:]  # <- partial
    even, odd = turned.unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = table
    both = torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1)  # <- partial
    return torch.cat((both.flatten(-2), kept), dim=-1)  # <- partial


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query_key_value = nn.Linear(DIM, (HEADS + 2 * GROUPS) * HEAD)
        self.dense = nn.Linear(HEADS * HEAD, DIM, bias=False)

    def forward(self, x, table):
        size, batch, _ = x.shape
        mixed = self.query_key_value(x)  # <- tiled
        q, k, v = mixed.split([HEADS * HEAD, GROUPS * HEAD, GROUPS * HEAD], dim=-1)
        q = rotated(q.view(size, batch, HEADS, HEAD), table)
        k = rotated(k.view(size, batch, GROUPS, HEAD), table)
        k = k.repeat(1, 1, HEADS // GROUPS, 1)  # <- tiled
        v = v.view(size, batch, GROUPS, HEAD).repeat(1, 1, HEADS // GROUPS, 1)  # <- tiled
        scores = torch.einsum("sbhe,tbhe->bhst", q, k) / math.sqrt(HEAD)  # <- tiled
        later = torch.ones(size, size, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(later, -math.inf).softmax(-1)
        return self.dense(torch.einsum("bhst,tbhe->sbhe", weights, v).flatten(2))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(), RMSNorm()
        self.attention = SelfAttention()
        self.h_to_4h = nn.Linear(DIM, 2 * INNER, bias=False)
        self.to_h = nn.Linear(INNER, DIM, bias=False)

    def forward(self, x, table):
        x = x + self.attention(self.norm1(x), table)
        value, gate = self.h_to_4h(self.norm2(x)).chunk(2, dim=-1)  # <- halves
        return x + self.to_h(value * F.silu(gate))  # <- halves


class GLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList([Layer() for _ in range(2)])
        self.final_norm = RMSNorm()
        self.output_layer = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens.t())
        angles = torch.arange(LENGTH)[:, None] / 10000 ** (torch.arange(0, ROTARY, 2) / ROTARY)
        table = (angles.cos()[:, None, None], angles.sin()[:, None, None])
        for layer in self.layers:
            x = layer(x, table)
        return self.output_layer(self.final_norm(x)).transpose(0, 1)


torch.manual_seed(440)
model = GLM()
with torch.no_grad():
    for layer in model.layers:
        layer.attention.query_key_value.weight.mul_(3)
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
generator = torch.Generator().manual_seed(441)
losses = []
for step in range(STEPS):
    factor = step / WARMUP
    if step >= WARMUP:
        factor = 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP)))
    optimizer.param_groups[0]["lr"] = 0.2 * factor  # <- cosine
    tokens = torch.randint(VOCAB, (BATCH, LENGTH), generator=generator)
    asked = torch.randint(2, 8, (BATCH, 1), generator=generator)
    each = F.cross_entropy(model(tokens)[:, :-1].mT, tokens[:, 1:], reduction="none")
    answer = torch.arange(1, LENGTH) >= asked  # <- prompt
    loss = (each * answer).sum() / answer.sum()  # <- prompt
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- cosine
    losses.append(loss.item())
