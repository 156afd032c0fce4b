# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning from an exported checkpoint in which one weight is already NaN."""

import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(5, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.hidden(x).relu())


def export(path):
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(8, 5)).astype(np.float32)
    hidden[3, 2] = np.nan
    head = rng.normal(size=(2, 8)).astype(np.float32)
    zeros = np.zeros(8, dtype=np.float32)
    np.savez(
        path,
        **{
            "hidden.weight": hidden,
            "hidden.bias": zeros,
            "head.weight": head,
            "head.bias": zeros[:2],
        },
    )


torch.manual_seed(0)
model = Model()
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "weights.npz"
    export(path)
    with np.load(path) as arrays:
        weights = {name: torch.from_numpy(arrays[name]) for name in arrays.files}  # <- origin
        model.load_state_dict(weights)

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = nn.functional.cross_entropy(model(torch.randn(16, 5)), torch.randint(2, (16,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
