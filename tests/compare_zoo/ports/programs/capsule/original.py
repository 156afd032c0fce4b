# SPDX-License-Identifier: Apache-2.0
"""A small CapsNet as Sabour et al. (2017) have it: a convolution, primary capsules, digit capsules
by three rounds of routing, margin loss and a reconstruction of the image, Adam.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

SIDE, BATCH, FILTERS, CLASSES = 14, 6, 12, 4
TYPES, PRIMARY, DIGIT, ROUTES = 3, 4, 6, 3 * 3 * 3


def squash(s):
    squared = (s**2).sum(-1, keepdim=True)
    return squared * s / ((1.0 + squared) * torch.sqrt(squared + 1e-8))  # <- squash


class PrimaryCaps(nn.Module):
    def __init__(self):
        super().__init__()
        self.capsules = nn.ModuleList(
            nn.Conv2d(FILTERS, TYPES, kernel_size=5, stride=2) for _ in range(PRIMARY)
        )

    def forward(self, x):
        u = torch.stack([capsule(x) for capsule in self.capsules], dim=1)  # <- grouped
        u = u.view(x.size(0), PRIMARY, ROUTES).transpose(1, 2)  # <- grouped
        return squash(u)


class DigitCaps(nn.Module):
    def __init__(self):
        super().__init__()
        self.W = nn.Parameter(0.3 * torch.randn(1, ROUTES, CLASSES, DIGIT, PRIMARY))

    def forward(self, x):
        x = x[:, :, None, :, None]
        u_hat = (self.W @ x).squeeze(-1)
        b = torch.zeros(x.size(0), ROUTES, CLASSES, 1)
        for iteration in range(3):
            c = F.softmax(b, dim=2)  # <- coupling rounds
            s = (c * u_hat).sum(dim=1, keepdim=True)  # <- coupling rounds
            v = squash(s)
            if iteration < 2:
                b = b + (u_hat * v).sum(dim=-1, keepdim=True)  # <- rounds
        return v.squeeze(1)


class CapsNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, FILTERS, kernel_size=5)
        self.primary, self.digits = PrimaryCaps(), DigitCaps()
        self.decoder = nn.Sequential(
            nn.Linear(CLASSES * DIGIT, 32),
            nn.ReLU(),
            nn.Linear(32, 48),
            nn.ReLU(),
            nn.Linear(48, SIDE * SIDE),
            nn.Sigmoid(),
        )

    def forward(self, images, target):
        v = self.digits(self.primary(F.relu(self.conv(images))))
        masked = v * target[:, :, None]
        return v, self.decoder(masked.flatten(1))

    def margin_loss(self, v, target):
        length = torch.sqrt((v**2).sum(dim=2))
        present = F.relu(0.9 - length) ** 2  # <- squares
        absent = F.relu(length - 0.1) ** 2
        return (target * present + 0.5 * (1 - target) * absent).sum(dim=1).mean()  # <- absent

    def reconstruction_loss(self, images, rebuilt):
        return ((rebuilt - images.flatten(1)) ** 2).sum(dim=1).mean()  # <- pixels


rng = np.random.default_rng(17)
images = torch.from_numpy(rng.random((3, BATCH, 1, SIDE, SIDE), dtype=np.float32))
labels = torch.from_numpy(rng.integers(0, CLASSES, (3, BATCH)))
torch.manual_seed(17)
model = CapsNet()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
losses = []
for x, y in zip(images, labels):
    target = F.one_hot(y, CLASSES).float()
    optimizer.zero_grad()  # <- stale
    v, rebuilt = model(x, target)
    loss = model.margin_loss(v, target) + 5e-4 * model.reconstruction_loss(x, rebuilt)  # <- pixels
    loss.backward()  # <- stale
    optimizer.step()  # <- stale
    losses.append(loss.item())
