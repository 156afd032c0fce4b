# SPDX-License-Identifier: Apache-2.0
"""Dilated causal convolutions with gates and skips (WaveNet, van den Oord et al., 2016)."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

LEVELS, CHANNELS, DILATIONS = 16, 10, (1, 2, 4)


class Layer(nn.Module):
    def __init__(self, dilation):
        super().__init__()
        self.gate = nn.Conv1d(CHANNELS, 2 * CHANNELS, 2, dilation=dilation)
        self.skip, self.rest = nn.Conv1d(CHANNELS, 12, 1), nn.Conv1d(CHANNELS, CHANNELS, 1)
        self.dilation = dilation

    def forward(self, x):
        y = self.gate(F.pad(x, (self.dilation, 0)))  # <- dilation flipped padding
        a, b = y.chunk(2, dim=1)  # <- gates
        y = torch.tanh(a) * torch.sigmoid(b)  # <- gates
        return x + self.rest(y), self.skip(y)  # <- residual


class WaveNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Conv1d(LEVELS, CHANNELS, 1)
        self.layers = nn.ModuleList(Layer(d) for d in DILATIONS)
        self.end1, self.end2 = nn.Conv1d(12, 12, 1), nn.Conv1d(12, LEVELS, 1)

    def forward(self, levels):
        x = self.embed(F.one_hot(levels, LEVELS).float().transpose(1, 2))
        total = 0
        for layer in self.layers:
            x, skip = layer(x)
            total = total + skip
        return self.end2(F.relu(self.end1(F.relu(total))))


torch.manual_seed(14)
model = WaveNet()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
rng = np.random.default_rng(16)
losses = []
for _ in range(2):
    wave = torch.from_numpy(rng.integers(0, LEVELS, (3, 21)))
    loss = F.cross_entropy(model(wave[:, :-1]), wave[:, 1:])  # <- early
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
