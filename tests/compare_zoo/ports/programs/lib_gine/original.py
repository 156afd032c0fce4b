# SPDX-License-Identifier: Apache-2.0
"""Properties of small molecules by a graph isomorphism network with bonds, written by hand: sums
over an incidence matrix, atoms and bonds of all molecules in one table, several tasks with gaps.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

ATOMS, BONDS, WIDTH, DEPTH, TASKS = 9, 4, 20, 3, 3
SIZES = [6, 4, 7, 5]


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.epsilon = nn.Parameter(0.3 * torch.randn(()))  # <- epsilon
        self.bond = nn.Parameter(torch.randn(BONDS, WIDTH))
        self.w1 = nn.Parameter(torch.randn(WIDTH, 2 * WIDTH) / WIDTH**0.5)
        self.b1 = nn.Parameter(0.1 * torch.randn(2 * WIDTH))
        self.gain = nn.Parameter(torch.rand(2 * WIDTH) + 0.5)
        self.offset = nn.Parameter(0.2 * torch.randn(2 * WIDTH))
        self.w2 = nn.Parameter(torch.randn(2 * WIDTH, WIDTH) / WIDTH**0.5)
        self.b2 = nn.Parameter(0.1 * torch.randn(WIDTH))
        self.register_buffer("mean", torch.zeros(2 * WIDTH))
        self.register_buffer("var", torch.ones(2 * WIDTH))

    def forward(self, x, leaving, arriving, bonds):
        """leaving, arriving: (atoms, directed bonds), ones where a bond begins and ends."""
        messages = F.relu(leaving.t() @ x + self.bond[bonds])  # <- both_ways
        x = (1 + self.epsilon) * x + arriving @ messages  # <- epsilon both_ways
        h = x @ self.w1 + self.b1
        if self.training:
            mean, var = h.mean(0), h.var(0, correction=0)
            n = len(h)
            self.mean = 0.9 * self.mean + 0.1 * mean.detach()
            self.var = 0.9 * self.var + 0.1 * var.detach() * n / (n - 1)
        else:
            mean, var = self.mean, self.var
        h = F.relu((h - mean) / (var + 1e-5).sqrt() * self.gain + self.offset)
        return h @ self.w2 + self.b2


class Molecules(nn.Module):
    def __init__(self):
        super().__init__()
        self.atom = nn.Parameter(torch.randn(ATOMS, WIDTH))
        self.convolutions = nn.ModuleList([Convolution() for _ in range(DEPTH)])
        self.jump = nn.Parameter(torch.randn((DEPTH + 1) * WIDTH, WIDTH) / WIDTH)
        self.answer = nn.Linear(WIDTH, TASKS)

    def forward(self, atoms, leaving, arriving, bonds, membership):
        x = self.atom[atoms]
        seen = [x]
        for layer, convolution in enumerate(self.convolutions):
            x = convolution(x, leaving, arriving, bonds)
            x = F.relu(x) if layer < DEPTH - 1 else x  # <- last_relu
            seen.append(x)
        x = torch.cat(seen, dim=1) @ self.jump  # <- jump
        return self.answer(membership @ x)  # <- pooled


def molecules(generator):
    atoms, ends, bonds, first = [], [], [], 0
    for n in SIZES:
        atoms.append(torch.randint(0, ATOMS, (n,), generator=generator))
        parent = [int(torch.randint(0, i, (1,), generator=generator)) for i in range(1, n)]
        kinds = torch.randint(0, BONDS, (n - 1,), generator=generator)
        for child, (p, kind) in enumerate(zip(parent, kinds.tolist()), 1):
            ends += [(first + p, first + child), (first + child, first + p)]  # <- both_ways
            bonds += [kind, kind]  # <- both_ways
        first += n
    source, target = torch.tensor(ends).t()  # <- both_ways
    leaving = F.one_hot(source, first).t().float()
    arriving = F.one_hot(target, first).t().float()
    membership = F.one_hot(torch.arange(4).repeat_interleave(torch.tensor(SIZES)), 4).t().float()
    labels = torch.randint(0, 2, (4, TASKS), generator=generator).float()
    known = torch.rand(4, TASKS, generator=generator) < 0.7
    return (torch.cat(atoms), leaving, arriving, torch.tensor(bonds), membership), labels, known


torch.manual_seed(420)
model = Molecules()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, eps=1e-5)  # <- epsilon
generator = torch.Generator().manual_seed(421)
losses = []
for step in range(5):
    model.train(step < 4)
    inputs, labels, known = molecules(generator)
    scores = model(*inputs)
    loss = F.binary_cross_entropy_with_logits(scores, labels, weight=known, reduction="sum")
    loss = loss / known.sum()
    if model.training:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # <- epsilon
    losses.append(loss.item())
