# SPDX-License-Identifier: Apache-2.0
"""DeepLOB (Zhang et al. 2019): convolutions over a limit order book, an inception module, an LSTM,
Adam whose epsilon is 1.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

LEVELS, WINDOW, HORIZON, BATCH, ALPHA = 3, 16, 5, 12, 0.004
FILTERS, HIDDEN, CLASSES = 8, 16, 3


class ConvBlock(nn.Module):
    def __init__(self, inside, kernel, stride):
        super().__init__()
        self.across = nn.Conv2d(inside, FILTERS, kernel, stride)
        self.along1 = nn.Conv2d(FILTERS, FILTERS, (4, 1))
        self.along2 = nn.Conv2d(FILTERS, FILTERS, (4, 1))

    def forward(self, x):
        x = self.across(x)  # <- zscored
        x = F.leaky_relu(x, 0.01)  # <- slope
        x = self.along1(F.pad(x, (0, 0, 1, 2)))  # <- pad
        x = F.leaky_relu(x, 0.01)  # <- slope
        x = self.along2(F.pad(x, (0, 0, 1, 2)))  # <- pad
        return F.leaky_relu(x, 0.01)  # <- slope


class Inception(nn.Module):
    def __init__(self):
        super().__init__()
        self.reduce3 = nn.Conv2d(FILTERS, FILTERS, 1)
        self.conv3 = nn.Conv2d(FILTERS, FILTERS, (3, 1), padding=(1, 0))
        self.reduce5 = nn.Conv2d(FILTERS, FILTERS, 1)
        self.conv5 = nn.Conv2d(FILTERS, FILTERS, (5, 1), padding=(2, 0))
        self.pool = nn.MaxPool2d((3, 1), stride=1, padding=(1, 0))
        self.project = nn.Conv2d(FILTERS, FILTERS, 1)

    def forward(self, x):
        three = F.leaky_relu(self.reduce3(x), 0.01)  # <- slope
        three = F.leaky_relu(self.conv3(three), 0.01)  # <- slope
        five = F.leaky_relu(self.reduce5(x), 0.01)  # <- slope
        five = F.leaky_relu(self.conv5(five), 0.01)  # <- slope
        pooled = self.pool(x)  # <- pooling
        pooled = F.leaky_relu(self.project(pooled), 0.01)  # <- slope
        return torch.cat([three, five, pooled], dim=1)


class DeepLOB(nn.Module):
    def __init__(self):
        super().__init__()
        self.block1 = ConvBlock(1, (1, 2), (1, 2))
        self.block2 = ConvBlock(FILTERS, (1, 2), (1, 2))
        self.block3 = ConvBlock(FILTERS, (1, LEVELS), 1)
        self.inception = Inception()
        self.lstm = nn.LSTM(3 * FILTERS, HIDDEN, batch_first=True)
        self.fc = nn.Linear(HIDDEN, CLASSES)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_uniform_(module.weight, 0.01, nonlinearity="leaky_relu")

    def forward(self, x):
        x = self.block3(self.block2(self.block1(x)))
        x = self.inception(x)
        x = x.squeeze(3).permute(0, 2, 1)
        x, _ = self.lstm(x)  # <- gates
        return self.fc(x[:, -1])


def order_book(rng, length):
    mid = 100 + np.cumsum(rng.normal(0, 0.3, length))
    spread = 0.05 * (1 + np.arange(LEVELS)) + rng.random((length, LEVELS)) * 0.02
    volumes = rng.integers(1, 400, (length, LEVELS, 2))
    ask, bid = mid[:, None] + spread, mid[:, None] - spread
    book = np.stack([ask, volumes[..., 0], bid, volumes[..., 1]], axis=2)
    return mid, book.reshape(length, 4 * LEVELS)


def normalise(book):
    return (book - book.mean(axis=0)) / book.std(axis=0)  # <- zscored


def label(mid):
    last = len(mid) - HORIZON
    future = np.stack([mid[k : last + k] for k in range(1, HORIZON + 1)])  # <- horizon
    change = future.mean(axis=0) / mid[:last] - 1  # <- horizon
    return np.where(change > ALPHA, 2, np.where(change < -ALPHA, 0, 1))


torch.manual_seed(4)
model = DeepLOB()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, eps=1.0)
rng = np.random.default_rng(7)
mid, book = order_book(rng, 160)
book, target = normalise(book), label(mid)
losses = []
for _ in range(3):
    ends = rng.integers(WINDOW, len(target), BATCH)
    windows = np.stack([book[end - WINDOW + 1 : end + 1] for end in ends])[:, None]
    x = torch.from_numpy(windows).float()  # <- zscored
    y = torch.from_numpy(target[ends])  # <- horizon
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)  # <- horizon twice
    loss.backward()
    optimizer.step()  # <- eps
    losses.append(loss.item())
