# SPDX-License-Identifier: Apache-2.0
"""The same with time before channels, each convolution two matrix products."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

LEVELS, WIDTH = 16, 10


class Block(nn.Module):
    def __init__(self, dilation):
        super().__init__()
        self.past, self.now = nn.Linear(WIDTH, 2 * WIDTH, bias=False), nn.Linear(WIDTH, 2 * WIDTH)
        self.skip, self.back = nn.Linear(WIDTH, 12), nn.Linear(WIDTH, WIDTH)
        self.dilation = dilation

    def forward(self, x):
        before = torch.zeros_like(x[:, : self.dilation])
        before = torch.cat((before, x[:, : -self.dilation]), dim=1)  # <- padding dilation
        y = self.past(before) + self.now(x)  # <- flipped dilation padding
        filtered, gate = y.split(WIDTH, dim=-1)  # <- gates
        y = filtered.tanh() * gate.sigmoid()  # <- gates
        return self.back(y) + x, self.skip(y)  # <- residual


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(LEVELS, WIDTH)
        self.shift = nn.Parameter(torch.zeros(WIDTH))
        self.blocks = nn.ModuleList([Block(2**i) for i in range(3)])
        self.fc1, self.fc2 = nn.Linear(12, 12), nn.Linear(12, LEVELS)

    def forward(self, levels):
        x = self.table(levels) + self.shift
        skips = []
        for block in self.blocks:
            x, skip = block(x)
            skips.append(skip)
        return self.fc2(self.fc1(torch.stack(skips).sum(0).relu()).relu())


def carried(old):
    new = {"table.weight": old["embed.weight"][..., 0].T, "shift": old["embed.bias"]}
    for i in range(3):
        gate = old[f"layers.{i}.gate.weight"]
        past, now = gate.unbind(-1)  # <- flipped
        new[f"blocks.{i}.past.weight"], new[f"blocks.{i}.now.weight"] = past, now
        new[f"blocks.{i}.now.bias"] = old[f"layers.{i}.gate.bias"]
        for mine, theirs in (("skip", "skip"), ("back", "rest")):
            new[f"blocks.{i}.{mine}.weight"] = old[f"layers.{i}.{theirs}.weight"][..., 0]
            new[f"blocks.{i}.{mine}.bias"] = old[f"layers.{i}.{theirs}.bias"]
    for mine, theirs in (("fc1", "end1"), ("fc2", "end2")):
        new[f"{mine}.weight"] = old[f"{theirs}.weight"][..., 0]
        new[f"{mine}.bias"] = old[f"{theirs}.bias"]
    return new


net = Net()
net.load_state_dict(carried(torch.load(sys.argv[1])))
adam = torch.optim.Adam(net.parameters(), lr=3e-3)
rng = np.random.default_rng(16)
losses = []
for _ in range(2):
    wave = torch.from_numpy(rng.integers(0, LEVELS, (3, 21)))
    logits = net(wave[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, LEVELS), wave[:, 1:].reshape(-1))  # <- early
    adam.zero_grad()
    loss.backward()
    adam.step()
    losses.append(loss.item())
