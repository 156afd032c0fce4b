# SPDX-License-Identifier: Apache-2.0
"""Train with a shuffling loader that is seeded anew for every step, so that all are one."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def loader(pictures, labels):
    order = torch.Generator().manual_seed(42)
    return DataLoader(TensorDataset(pictures, labels), 16, shuffle=True, generator=order)


torch.manual_seed(0)
pictures, labels = torch.randn(64, 32), torch.randint(10, (64,))
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(8):
    batch, wanted = next(iter(loader(pictures, labels)))
    loss = nn.functional.cross_entropy(model(batch), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}  loss {loss.item():.4f}", flush=True)
