# SPDX-License-Identifier: Apache-2.0
"""The same graph network without edge lists: graphs padded to one size, their bonds as a dense table
of counts, every node's mask carried along, as accelerators with fixed shapes like it.
"""

import sys

import numpy as np
import torch
from torch import nn

KINDS, N_BONDS, WIDTH, DEPTH, N_TASKS, BATCH, MOST = 9, 4, 10, 3, 3, 5, 8


class MaskedNorm(nn.Module):
    """A batch norm over the nodes that are there."""

    def __init__(self, width):
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))

    def forward(self, x, there):
        mean, variance = self.mean, self.variance  # <- buffers
        if self.training:
            count = there.sum()  # <- counted
            mean = (x * there).sum((0, 1)) / count  # <- counted
            variance = ((x - mean).square() * there).sum((0, 1)) / count  # <- counted
            with torch.no_grad():
                self.mean += 0.1 * (mean - self.mean)
                unbiased = variance * count / (count - 1)  # <- buffers
                self.variance += 0.1 * (unbiased - self.variance)  # <- buffers
        return (x - mean) / torch.sqrt(variance + 1e-5) * self.gain + self.shift  # <- buffers


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = (
            nn.Linear(WIDTH, 2 * WIDTH, bias=False),
            nn.Linear(2 * WIDTH, WIDTH, bias=False),
        )
        self.inner, self.outer = MaskedNorm(2 * WIDTH), MaskedNorm(WIDTH)
        self.eps, self.bonds = (
            nn.Parameter(torch.zeros(())),
            nn.Parameter(torch.zeros(N_BONDS, WIDTH)),
        )

    def forward(self, x, table, there):
        """table: (batch, to, from, bonds), how many bonds of a kind lead from a node to another."""
        message = (x[:, :, None] + self.bonds).relu()  # <- message
        gathered = torch.einsum("bijk,bjkd->bid", table, message)  # <- direction message
        x = x + self.eps * x + gathered  # <- self
        x = self.inner(self.up(x), there).relu()  # <- self
        return self.outer(self.down(x), there)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.kinds = nn.Parameter(torch.zeros(KINDS, WIDTH))
        self.hub = nn.Parameter(torch.zeros(WIDTH))
        self.layers = nn.ModuleList([Layer() for _ in range(DEPTH)])
        self.hubs = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH - 1)])
        self.head = nn.Linear(WIDTH, N_TASKS)

    def forward(self, atoms, table, there):
        x = self.kinds[atoms]
        hub, total = self.hub.repeat(BATCH, 1), x
        for n, layer in enumerate(self.layers):
            given = x + hub[:, None]  # <- active
            x = layer(given, table, there)
            if n + 1 < DEPTH:
                x = x.relu()  # <- active
                seen = (given * there).sum(1)  # <- virtual
                hub = hub + self.hubs[n](seen).relu()  # <- virtual
            total = total + x  # <- jumping active
        mean = (total * there).sum(1) / there.sum(1)  # <- readout
        return self.head(mean)


def padded(rng):
    atoms = np.zeros((BATCH, MOST), dtype=np.int64)
    table = np.zeros((BATCH, MOST, MOST, N_BONDS), dtype=np.float32)
    there = np.zeros((BATCH, MOST, 1), dtype=np.float32)
    for graph in range(BATCH):
        size = int(rng.integers(3, 8))
        atoms[graph, :size] = rng.integers(0, KINDS, size)
        source, target = rng.integers(0, size, (2, 2 * size))
        kind = rng.integers(0, N_BONDS, 2 * size)
        np.add.at(table[graph], (target, source, kind), 1.0)  # <- direction
        there[graph, :size] = 1.0
    return [torch.from_numpy(array) for array in (atoms, table, there)]


def masked_loss(scores, labels):
    known = torch.isfinite(labels)
    truth = torch.nan_to_num(labels)
    each = torch.logaddexp(scores, torch.zeros(())) - scores * truth
    return torch.where(known, each, 0.0).sum() / known.sum()  # <- labelled


def norm(old, name):
    words = {"gain": "weight", "shift": "bias", "mean": "running_mean", "variance": "running_var"}
    return {mine: old[f"{name}.{theirs}"] for mine, theirs in words.items()}


def moved(old):
    new = {"kinds": old["atom_encoder.weight"], "hub": old["virtual_node"][0]}
    for n in range(DEPTH):
        at = f"layers.{n}."
        new[f"{at}up.weight"] = old[f"convs.{n}.mlp.0.weight"]
        new[f"{at}down.weight"] = old[f"convs.{n}.mlp.3.weight"]
        new[f"{at}eps"] = old[f"convs.{n}.eps"][0]
        new[f"{at}bonds"] = old[f"convs.{n}.bond_encoder.weight"]
        for mine, theirs in (("inner", f"convs.{n}.mlp.1"), ("outer", f"norms.{n}")):
            new.update({f"{at}{mine}.{name}": w for name, w in norm(old, theirs).items()})
    for n in range(DEPTH - 1):
        for kind in ("weight", "bias"):
            new[f"hubs.{n}.{kind}"] = old[f"virtual_mlps.{n}.0.{kind}"]
    return new | {f"head.{kind}": old[f"head.{kind}"] for kind in ("weight", "bias")}


net = Network()
net.load_state_dict(moved(torch.load(sys.argv[1])))
adam = torch.optim.Adam(net.parameters(), lr=0.01, foreach=True)
rng = np.random.default_rng(191)
losses = []
for _ in range(3):
    graphs = padded(rng)
    labels = torch.tensor(rng.integers(0, 2, (BATCH, N_TASKS)).astype(np.float32))
    labels[torch.tensor(rng.random((BATCH, N_TASKS)) < 0.3)] = torch.nan
    loss = masked_loss(net(*graphs), labels)
    adam.zero_grad()
    loss.backward()
    adam.step()
    losses.append(loss.item())
net.train(False)
with torch.no_grad():
    losses.append(masked_loss(net(*graphs), labels).item())
