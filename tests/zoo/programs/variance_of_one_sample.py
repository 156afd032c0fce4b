# SPDX-License-Identifier: Apache-2.0
"""Hand-made batch standardisation; the last batch of the epoch holds one sample."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Standardize(nn.Module):
    def forward(self, x):
        return (x - x.mean(0)) / (x.var(0) + 1e-5).sqrt()  # <- origin


torch.manual_seed(0)
data = TensorDataset(torch.randn(25, 6), torch.randn(25, 1))
model = nn.Sequential(nn.Linear(6, 8), Standardize(), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for x, y in DataLoader(data, batch_size=8):
    loss = (model(x) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item().hex())
