# SPDX-License-Identifier: Apache-2.0
"""The same on a device with half the memory: two halves of a batch, gradients added up."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 6)

    def forward(self, x):
        return self.b(self.norm(F.gelu(self.a(x))))  # <- gelu eps


net = Net()
old = torch.load(sys.argv[1])
places = {"0": "a", "2": "norm", "3": "b"}
net.load_state_dict({places[name[0]] + name[1:]: value for name, value in old.items()})
adamw = torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.1)
rng = np.random.default_rng(10)
losses = []
for _ in range(3):
    x = torch.from_numpy(rng.standard_normal((8, 16), dtype=np.float32))
    y = torch.from_numpy(rng.integers(0, 6, 8))
    total = 0.0
    for i in range(2):
        part = slice(4 * i, 4 * i + 4)
        loss = F.cross_entropy(net(x[part]), y[part]) / 2  # <- undivided forgotten
        loss.backward()  # <- undivided forgotten
        total += loss.item()
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)  # <- norm forgotten undivided
    adamw.step()  # <- decay forgotten undivided
    adamw.zero_grad()
    losses.append(total)
