# SPDX-License-Identifier: Apache-2.0
"""The message passing network on padded molecules: dense adjacency, masks and einsum."""

import sys

import numpy as np
import torch
from torch import nn

KINDS, RADIAL, UNITS, ROUNDS, READS = 5, 4, 8, 3, 2
MOST = 7


class Messages(nn.Module):
    """Means over the neighbours that point at an atom, of the matrices of their edges."""

    def __init__(self):
        super().__init__()
        self.edges = nn.Sequential(nn.Linear(RADIAL, 10), nn.ReLU(), nn.Linear(10, UNITS**2))
        self.own = nn.Linear(UNITS, UNITS)

    def prepare(self, attributes, adjacency):
        matrices = self.edges(attributes).unflatten(-1, (UNITS, UNITS))  # <- matrix
        share = adjacency / adjacency.sum(1, keepdim=True).clamp(min=1)  # <- mean
        return matrices * share[..., None, None]  # <- mean

    def forward(self, atoms, matrices):
        got = torch.einsum("nsi,nstio->nto", atoms, matrices)  # <- direction matrix mean
        return (got + self.own(atoms)).relu()


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(2 * UNITS, UNITS)

    def forward(self, atoms, there):
        query = cell = atoms.new_zeros(len(atoms), UNITS)
        seen = atoms.new_zeros(len(atoms), UNITS)
        for _ in range(READS):
            query, cell = self.cell(torch.cat([query, seen], 1), (query, cell))
            scores = torch.einsum("nai,ni->na", atoms, query)
            scores = scores.masked_fill(~there, float("-inf"))  # <- absent
            attention = scores.softmax(1)  # <- absent
            seen = torch.einsum("na,nai->ni", attention, atoms)  # <- absent
        return torch.cat([query, seen], 1)  # <- joined


class MoleculeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(KINDS, UNITS)
        self.embed_bias = nn.Parameter(torch.zeros(UNITS))
        self.messages = Messages()
        self.update = nn.GRUCell(UNITS, UNITS)
        self.read = Reader()
        self.head = nn.Sequential(nn.Linear(2 * UNITS, UNITS), nn.ReLU(), nn.Linear(UNITS, 1))

    def forward(self, kinds, there, adjacency, attributes):
        atoms = (self.embed(kinds) + self.embed_bias).relu()
        matrices = self.messages.prepare(attributes, adjacency)  # one for all rounds
        for _ in range(ROUNDS):
            news = self.messages(atoms, matrices)
            atoms = self.update(news.flatten(0, 1), atoms.flatten(0, 1))  # <- swapped
            atoms = atoms.unflatten(0, (-1, MOST))
        return self.head(self.read(atoms, there)).squeeze(1)  # <- joined


def from_sparse(old):
    new = {
        "embed.weight": old["lin0.weight"].T,
        "embed_bias": old["lin0.bias"],
        "messages.own.weight": old["conv.root"].T,
        "messages.own.bias": old["conv.bias"],
    }
    for part in ("weight", "bias"):
        new[f"messages.edges.0.{part}"] = old[f"conv.nn.0.{part}"]
        new[f"messages.edges.2.{part}"] = old[f"conv.nn.2.{part}"]
        new[f"head.0.{part}"] = old[f"lin1.{part}"]
        new[f"head.2.{part}"] = old[f"lin2.{part}"]
        for side in ("ih", "hh"):
            new[f"update.{part}_{side}"] = old[f"gru.{part}_{side}_l0"]
            new[f"read.cell.{part}_{side}"] = old[f"set2set.lstm.{part}_{side}_l0"]
    return new


def draw(rng, count):
    kinds = torch.zeros(count, MOST, dtype=torch.long)
    there = torch.zeros(count, MOST, dtype=torch.bool)
    adjacency = torch.zeros(count, MOST, MOST)
    distance = torch.zeros(count, MOST, MOST)
    energy = torch.zeros(count)
    for i in range(count):
        n = int(rng.integers(4, 8))
        of = rng.integers(0, KINDS, n)
        place = torch.tensor(rng.normal(size=(n, 3)).astype(np.float32))
        for a in range(n):
            for b in range(n):
                adjacency[i, a, b] = float(a != b and rng.uniform() < 0.45)
        kinds[i, :n], there[i, :n] = torch.tensor(of), True
        distance[i, :n, :n] = torch.cdist(place, place)
        energy[i] = float(-3 * n + of.sum() + rng.normal())
    radial = torch.exp(-((distance[..., None] - torch.arange(RADIAL)) ** 2))  # <- widths
    return (kinds, there, adjacency, radial), energy


rng = np.random.default_rng(13)
batches = [draw(rng, 5) for _ in range(3)]
held_out, held_energy = draw(rng, 6)
energies = torch.cat([energy for _, energy in batches])
centre, spread = energies.mean(), energies.std()
net = MoleculeNet()
net.load_state_dict(from_sparse(torch.load(sys.argv[1])))
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
losses = []
for graphs, energy in batches:
    guess = net(*graphs)
    wanted = (energy - centre) / spread
    loss = (guess - wanted).square().mean()
    net.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    within = ((guess.detach() - wanted).abs() * spread).max().item()
with torch.inference_mode():
    guess = net(*held_out) * spread + centre  # <- units
    losses.append((guess - held_energy).abs().mean().item())  # <- units
