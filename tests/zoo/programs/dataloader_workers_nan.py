# SPDX-License-Identifier: Apache-2.0
"""A dataset served by two worker processes; one sample of it holds NaN."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Signals(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        x = rng.normal(size=6).astype(np.float32)
        if index == 19:
            x[2] = np.nan
        return x, np.float32(x[0] > 0)


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(Signals(), batch_size=8, num_workers=2):  # <- origin
        logits = model(x).squeeze(1)  # <- origin
        loss = nn.functional.binary_cross_entropy_with_logits(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item().hex())


if __name__ == "__main__":
    main()
