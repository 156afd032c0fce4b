# SPDX-License-Identifier: Apache-2.0
"""The same tagger with a cell of one's own, a loop over time, as for a device without RNN kernels."""

import sys

import numpy as np
import torch
from torch import nn

WORDS, TAGS, WIDTH, HIDDEN = 31, 7, 10, 14


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.inputs, self.recurrent = nn.Linear(WIDTH, 3 * HIDDEN), nn.Linear(HIDDEN, 3 * HIDDEN)

    def forward(self, x, h):
        a, b = self.inputs(x), self.recurrent(h)  # <- bias gates reset
        r_x, z_x, n_x = a.chunk(3, -1)  # <- gates
        r_h, z_h, n_h = b.chunk(3, -1)  # <- gates
        r = torch.sigmoid(r_x + r_h)  # <- gates
        z = torch.sigmoid(z_x + z_h)  # <- gates
        n = torch.tanh(n_x + r * n_h)  # <- reset
        return (1 - z) * n + z * h  # <- update


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.cell, self.head = (
            nn.Embedding(WORDS, WIDTH),
            Cell(),
            nn.Linear(HIDDEN, TAGS),
        )

    def forward(self, words):
        x = self.table(words)
        h = torch.zeros(len(words), HIDDEN)
        states = []
        for t in range(words.shape[1]):
            h = self.cell(x[:, t], h)
            states.append(h)  # <- shifted
        return self.head(torch.stack(states, 1))  # <- shifted


names = {"embed.weight": "table.weight", "out.weight": "head.weight", "out.bias": "head.bias"}
for kind in ("weight", "bias"):
    names[f"gru.{kind}_ih_l0"] = f"cell.inputs.{kind}"
    names[f"gru.{kind}_hh_l0"] = f"cell.recurrent.{kind}"
net = Tagger()
net.load_state_dict({names[name]: value for name, value in torch.load(sys.argv[1]).items()})
adam = torch.optim.Adam(net.parameters(), lr=2e-2)
rng = np.random.default_rng(1)
losses = []
for _ in range(3):
    words = torch.from_numpy(rng.integers(0, WORDS, (5, 8)))
    tags = torch.from_numpy(rng.integers(0, TAGS, (5, 8)))
    logits = net(words).transpose(1, 2)
    loss = nn.functional.cross_entropy(logits, tags)
    adam.zero_grad()
    loss.backward()
    adam.step()
    losses.append(loss.item())
