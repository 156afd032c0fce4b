# SPDX-License-Identifier: Apache-2.0
"""A shuffled DataLoader with two worker processes and pinned order."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(32, 5), torch.randint(3, (32,)))
    model = nn.Sequential(nn.Linear(5, 16), nn.Hardswish(), nn.BatchNorm1d(16), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        for x, y in DataLoader(data, batch_size=8, shuffle=True, num_workers=2):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(loss.item().hex())


if __name__ == "__main__":
    main()
