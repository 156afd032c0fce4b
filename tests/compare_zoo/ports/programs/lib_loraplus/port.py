# SPDX-License-Identifier: Apache-2.0
"""The adapted BERT in own code: all sentences of a batch in one row without padding, queries, keys
and values in one frozen matrix, the low ranks added to it.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, HEADS, RANK, ALPHA, DEPTH = 24, 3, 4, 6, 3


def norm():
    return nn.LayerNorm(WIDTH, eps=1e-12)  # <- eps


class AdaptedQKV(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.empty(3 * WIDTH, WIDTH))
        self.register_buffer("bias", torch.empty(3 * WIDTH))
        self.down = nn.Parameter(torch.empty(2, RANK, WIDTH))
        self.up = nn.Parameter(torch.empty(2, WIDTH, RANK))
        self.scale = ALPHA / RANK**0.5  # <- rslora

    def forward(self, x):
        change_q, change_v = (self.up @ self.down * self.scale).unbind(0)  # <- rslora
        change = torch.cat((change_q, torch.zeros_like(change_q), change_v))
        return F.linear(x, self.weight + change, self.bias).chunk(3, dim=-1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = AdaptedQKV(), nn.Linear(WIDTH, WIDTH)
        self.norm1, self.norm2 = norm(), norm()  # <- eps
        self.wide, self.narrow = nn.Linear(WIDTH, 40), nn.Linear(40, WIDTH)

    def forward(self, x, seen):
        q, k, v = (t.unflatten(-1, (HEADS, -1)) for t in self.qkv(x))
        scores = torch.einsum("ihd,jhd->hij", q, k) * (WIDTH // HEADS) ** -0.5
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)  # <- blocks
        mixed = torch.einsum("hij,jhd->ihd", weights, v).flatten(1)  # <- blocks
        x = self.norm1(x + self.out(mixed))  # <- eps
        return self.norm2(x + self.narrow(F.gelu(self.wide(x))))  # <- eps


class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(60, WIDTH), nn.Embedding(16, WIDTH)
        self.parts, self.norm = nn.Embedding(2, WIDTH), norm()  # <- eps
        self.layers = nn.ModuleList([Layer() for _ in range(DEPTH)])
        self.pool, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, ids, place, part, owner):
        x = self.norm(self.words(ids) + self.places(place) + self.parts(part))  # <- eps
        seen = owner[:, None] == owner[None, :]  # <- blocks
        for layer in self.layers:
            x = layer(x, seen)
        return self.head(self.pool(x[place == 0]).tanh())  # <- head


def load(model, saved):
    saved = {k.removeprefix("base_model.model."): v for k, v in saved.items()}

    def both(layer, name):
        layer.load_state_dict({k: saved[f"{name}.{k}"] for k in ("weight", "bias")})

    kinds = (model.words, "word"), (model.places, "position"), (model.parts, "token_type")
    for layer, name in kinds:
        layer.weight.copy_(saved[f"bert.embeddings.{name}_embeddings.weight"])
    both(model.norm, "bert.embeddings.LayerNorm")
    both(model.pool, "bert.pooler.dense")
    both(model.head, "classifier.modules_to_save.default")  # <- head
    for i, layer in enumerate(model.layers):
        here = f"bert.encoder.layer.{i}"
        attend = f"{here}.attention.self"
        for kind in ("weight", "bias"):
            names = (f"query.base_layer.{kind}", f"key.{kind}", f"value.base_layer.{kind}")
            getattr(layer.qkv, kind).copy_(torch.cat([saved[f"{attend}.{n}"] for n in names]))
        for j, n in enumerate(("query", "value")):
            layer.qkv.down[j].copy_(saved[f"{attend}.{n}.lora_A.default.weight"])
            layer.qkv.up[j].copy_(saved[f"{attend}.{n}.lora_B.default.weight"])
        both(layer.out, f"{here}.attention.output.dense")
        both(layer.norm1, f"{here}.attention.output.LayerNorm")
        both(layer.wide, f"{here}.intermediate.dense")
        both(layer.narrow, f"{here}.output.dense")
        both(layer.norm2, f"{here}.output.LayerNorm")


model = Adapted()
with torch.no_grad():
    load(model, torch.load(sys.argv[1]))
model.requires_grad_(False)
slow, fast = [model.head.weight], [model.head.bias]  # <- rates
for layer in model.layers:
    slow.append(layer.qkv.down)
    fast.append(layer.qkv.up)  # <- rates
for p in slow + fast:
    p.requires_grad_()
groups = [{"params": slow, "lr": 1e-3}, {"params": fast, "lr": 8e-3}]  # <- rates
optimizer = torch.optim.AdamW(groups, eps=1e-5, weight_decay=0.0)  # <- rates
rng = torch.Generator().manual_seed(381)
losses = []
for _ in range(4):
    lengths = torch.randint(5, 13, (5, 1), generator=rng).flatten()
    first = torch.randint(2, 5, (5, 1), generator=rng).flatten()
    tokens = torch.randint(1, 60, (5, 12), generator=rng)
    labels = torch.randint(0, 3, (5,), generator=rng)
    owner = torch.arange(5).repeat_interleave(lengths)
    place = torch.cat([torch.arange(n) for n in lengths.tolist()])
    part = (place >= first[owner]).long()
    scores = model(tokens[owner, place], place, part, owner)
    loss = (scores.logsumexp(1) - scores.gather(1, labels[:, None])[:, 0]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- rates
    losses.append(loss.item())
