# SPDX-License-Identifier: Apache-2.0
"""The same tagger from the equations: own cells in a loop over time, time first, a matrix a gate,
gradients cut and momentum written out.
"""

import sys

import numpy as np
import torch
from torch import nn

VOCABULARY, EMBED, UNITS, CLASSES = 37, 12, 16, 5


class Gate(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.w = nn.Parameter(torch.empty(inputs, UNITS).uniform_(-0.1, 0.1))
        self.u = nn.Parameter(torch.empty(UNITS, UNITS).uniform_(-0.1, 0.1))
        self.b = nn.Parameter(torch.zeros(UNITS))
        self.c = nn.Parameter(torch.zeros(UNITS))

    def forward(self, x, h):
        return x @ self.w + self.b + (h @ self.u + self.c)  # <- bias gates reset


class LSTMCell(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.i, self.f, self.g, self.o = (Gate(inputs) for _ in range(4))

    def forward(self, x, h, c):
        i = torch.sigmoid(self.i(x, h))
        f = torch.sigmoid(self.f(x, h))  # <- gates forget
        g = torch.tanh(self.g(x, h))  # <- gates
        o = torch.sigmoid(self.o(x, h))
        c = f * c + i * g  # <- forget
        return o * torch.tanh(c), c  # <- state


class GRUCell(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.r, self.z, self.n = (Gate(inputs) for _ in range(3))

    def forward(self, x, h):
        r = torch.sigmoid(self.r(x, h))
        z = torch.sigmoid(self.z(x, h))
        inner = x @ self.n.w + self.n.b + r * (h @ self.n.u + self.n.c)  # <- reset
        return (1 - z) * torch.tanh(inner) + z * h


class SequenceLabeller(nn.Module):
    def __init__(self):
        super().__init__()
        self.lookup = nn.Embedding(VOCABULARY, EMBED)
        self.below, self.above = LSTMCell(EMBED), LSTMCell(UNITS)
        self.reader = GRUCell(UNITS)
        self.out = nn.Linear(UNITS, CLASSES)

    def forward(self, words):
        sentence = self.lookup(words.t())
        h1 = c1 = h2 = c2 = h3 = sentence.new_zeros(words.shape[0], UNITS)
        scores = []
        for x in sentence:
            h1, c1 = self.below(x, h1, c1)
            h2, c2 = self.above(h1, h2, c2)
            h3 = self.reader(h2, h3)
            scores.append(self.out(h3))
        return torch.stack(scores, dim=1)


GATES = {"below": ("lstm", 0, "ifgo"), "above": ("lstm", 1, "ifgo"), "reader": ("gru", 0, "rzn")}


def translated(old):
    new = {"lookup.weight": old["embedding.weight"]}
    new |= {f"out.{kind}": old[f"classifier.{kind}"] for kind in ("weight", "bias")}
    for cell, (layer, number, gates) in GATES.items():
        for mine, theirs in zip("wubc", ("weight_ih", "weight_hh", "bias_ih", "bias_hh")):
            parts = old[f"{layer}.{theirs}_l{number}"].chunk(len(gates))
            for gate, part in zip(gates, parts):
                new[f"{cell}.{gate}.{mine}"] = part.t() if part.dim() == 2 else part
    return new


def clip(parameters, largest):
    norm = torch.sqrt(sum((p.grad**2).sum() for p in parameters))  # <- clip
    factor = torch.clamp(largest / (norm + 1e-6), max=1.0)  # <- clip
    for p in parameters:
        p.grad.mul_(factor)  # <- clip


def momentum_step(parameters, velocity, lr=0.5, mu=0.9):
    with torch.no_grad():
        for p, v in zip(parameters, velocity):
            v.mul_(mu).add_(p.grad)  # <- momentum
            p.add_(v, alpha=-lr)  # <- momentum
            p.grad = None


net = SequenceLabeller()
net.load_state_dict(translated(torch.load(sys.argv[1])))
parameters = list(net.parameters())
velocity = [torch.zeros_like(p) for p in parameters]
rng = np.random.default_rng(5)
losses = []
for _ in range(3):
    words = torch.tensor(rng.integers(0, VOCABULARY, (6, 4)))
    tags = torch.tensor(rng.integers(0, CLASSES, (6, 4)))
    picked = net(words).log_softmax(-1).gather(-1, tags[..., None])
    loss = -picked.mean()  # <- reduction
    loss.backward()
    clip(parameters, 0.5)
    momentum_step(parameters, velocity)
    losses.append(loss.item())
