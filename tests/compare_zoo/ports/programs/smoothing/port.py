# SPDX-License-Identifier: Apache-2.0
"""The same in code of one's own, heads by einsum, the loss from a smoothed distribution."""

import sys

import numpy as np
import torch
from torch import nn

VOCAB, DIM, HEADS, PAD = 23, 16, 2, 0


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(DIM, DIM) for _ in range(4))

    def forward(self, x, memory, allowed):
        q, k, v = self.q(x), self.k(memory), self.v(memory)
        q, k, v = (one.unflatten(-1, (HEADS, -1)) for one in (q, k, v))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / (DIM / HEADS) ** 0.5
        scores = scores.masked_fill(~allowed, -1e9)  # <- unmasked
        return self.o(torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v).flatten(2))


class Layer(nn.Module):
    def __init__(self, crosses):
        super().__init__()
        self.own, self.cross = Attention(), Attention() if crosses else None
        self.norms = nn.ModuleList(nn.LayerNorm(DIM) for _ in range(3 if crosses else 2))
        self.up, self.down = nn.Linear(DIM, 32), nn.Linear(32, DIM)

    def forward(self, x, allowed, memory=None, seen=None):
        x = self.norms[0](x + self.own(x, x, allowed))
        if self.cross is not None:
            x = self.norms[1](x + self.cross(x, memory, seen))
        return self.norms[-1](x + self.down(torch.relu(self.up(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.empty(VOCAB, DIM))
        self.encoder, self.decoder = Layer(False), Layer(True)
        self.last_a, self.last_b = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        powers = 10000 ** (torch.arange(0, DIM, 2) / DIM)  # <- positions
        angles = torch.arange(32)[:, None] / powers  # <- positions
        self.register_buffer(
            "places", torch.stack((angles.sin(), angles.cos()), -1).flatten(1)
        )  # <- positions

    def embed(self, ids):
        return self.table[ids] * DIM**0.5 + self.places[: ids.shape[1]]  # <- scaled positions

    def forward(self, source, target):
        seen = (source != PAD)[:, None, None, :]  # <- unmasked
        size = target.shape[1]
        past = torch.ones(size, size).tril().bool()
        memory = self.last_a(self.encoder(self.embed(source), seen))
        return self.last_b(self.decoder(self.embed(target), past, memory, seen)) @ self.table.T


def carried(old, places):
    new = {"table": old["embed.weight"], "places": places}
    for kind in ("weight", "bias"):
        for mine, theirs in (("encoder", "core.encoder"), ("decoder", "core.decoder")):
            new[f"last_{'ab'[mine == 'decoder']}.{kind}"] = old[f"{theirs}.norm.{kind}"]
            there = f"{theirs}.layers.0."
            for a, b in (("own", "self_attn"), ("cross", "multihead_attn")):
                if f"{there}{b}.in_proj_weight" in old:
                    parts = old[f"{there}{b}.in_proj_{kind}"].chunk(3)
                    new |= {f"{mine}.{a}.{p}.{kind}": part for p, part in zip("qkv", parts)}
                    new[f"{mine}.{a}.o.{kind}"] = old[f"{there}{b}.out_proj.{kind}"]
            new[f"{mine}.up.{kind}"] = old[f"{there}linear1.{kind}"]
            new[f"{mine}.down.{kind}"] = old[f"{there}linear2.{kind}"]
            for i in range(3):
                if f"{there}norm{i + 1}.{kind}" in old:
                    new[f"{mine}.norms.{i}.{kind}"] = old[f"{there}norm{i + 1}.{kind}"]
    return new


def smoothed(logits, ids, rate=0.1):
    logs = logits.log_softmax(-1)
    wanted = torch.full_like(logs, rate / VOCAB)  # <- others
    wanted = wanted.scatter_add(
        -1, ids[..., None], torch.full_like(logs[..., :1], 1 - rate)
    )  # <- others
    each = -(wanted * logs).sum(-1)  # <- others
    real = (ids != PAD).float()
    return (each * real).sum() / real.sum()  # <- counted others


net = Net()
net.load_state_dict(carried(torch.load(sys.argv[1]), net.places))
net.table.register_hook(lambda gradient: gradient)
adam = torch.optim.Adam(net.parameters(), lr=2e-3, betas=(0.9, 0.98), eps=1e-9)
rng = np.random.default_rng(14)
losses = []
for _ in range(2):
    source = torch.from_numpy(rng.integers(1, VOCAB, (3, 7)))
    source[0, 5:], source[1, 4:] = PAD, PAD
    target = torch.from_numpy(rng.integers(1, VOCAB, (3, 6)))
    target[2, 4:] = PAD
    loss = smoothed(net(source, target[:, :-1]), target[:, 1:])
    adam.zero_grad()
    loss.backward()
    adam.step()
    losses.append(loss.item())
