# SPDX-License-Identifier: Apache-2.0
"""SimCLR as Chen et al. (2020) have it: two views of each image, a small convolutional encoder, a
projection head, NT-Xent over all of the batch, LARS with a cosine schedule.
"""

import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

BATCH, SIZE, CROP, CHANNELS, FEATURES, PROJECTION = 6, 12, 10, 8, 16, 8
TEMPERATURE, STEPS = 0.5, 3


class ContrastiveTransform:
    """Crop, flip and jitter with the numbers that a generator draws."""

    def __init__(self, rng):
        self.rng = rng

    def __call__(self, image):
        top, left = self.rng.integers(0, SIZE - CROP + 1, 2)
        view = image[:, top : top + CROP, left : left + CROP]
        if self.rng.random() < 0.5:
            view = view.flip(-1)  # <- mirror
        brightness, contrast = self.rng.uniform(0.6, 1.4, 2)
        view = view * brightness
        mean = view.mean()  # <- contrast
        return (view - mean) * contrast + mean  # <- contrast


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, CHANNELS, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(CHANNELS)
        self.conv2 = nn.Conv2d(CHANNELS, FEATURES, 3, stride=2, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(FEATURES)
        self.maxpool = nn.MaxPool2d(2)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))  # <- mirror
        x = self.maxpool(x)  # <- pooled
        x = F.relu(self.bn2(self.conv2(x)))
        return x.mean(dim=(2, 3))


class SimCLR(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.projector = nn.Sequential(
            nn.Linear(FEATURES, FEATURES, bias=False),
            nn.BatchNorm1d(FEATURES),
            nn.ReLU(),
            nn.Linear(FEATURES, PROJECTION, bias=False),
        )

    def forward(self, x):
        return self.projector(self.encoder(x))


class NTXent(nn.Module):
    def __init__(self):
        super().__init__()
        self.mask = torch.eye(2 * BATCH, dtype=torch.bool)
        self.criterion = nn.CrossEntropyLoss(reduction="sum")

    def forward(self, z_i, z_j):
        z = torch.cat([z_i, z_j], dim=0)
        sim = F.cosine_similarity(z.unsqueeze(1), z.unsqueeze(0), dim=2)  # <- cosine
        sim = sim / TEMPERATURE  # <- temperature
        sim = sim.masked_fill(self.mask, float("-inf"))  # <- itself
        partner = torch.cat([torch.arange(BATCH) + BATCH, torch.arange(BATCH)])
        return self.criterion(sim, partner) / (2 * BATCH)  # <- itself


class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.01, eta=0.1):
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "eta": eta}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                d_p = p.grad
                if p.ndim > 1:
                    d_p = d_p.add(p, alpha=group["weight_decay"])  # <- excluded
                    trust = group["eta"] * p.norm() / d_p.norm()  # <- excluded
                    d_p = d_p * trust  # <- excluded
                state = self.state[p]
                if "mu" not in state:
                    state["mu"] = torch.zeros_like(p)
                state["mu"].mul_(group["momentum"]).add_(d_p)
                p.add_(state["mu"], alpha=-group["lr"])  # <- cosine_rate excluded


rng = np.random.default_rng(61)
images = torch.from_numpy(rng.random((STEPS, BATCH, 3, SIZE, SIZE), dtype=np.float32))
transform = ContrastiveTransform(rng)
torch.manual_seed(67)
model = SimCLR()
torch.save(model.state_dict(), sys.argv[1])
criterion = NTXent()
optimizer = LARS(model.parameters(), lr=0.8)
scheduler = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda n: 0.5 * (1 + math.cos(math.pi * n / STEPS))
)
losses = []
for batch in images:
    x_i = torch.stack([transform(image) for image in batch])
    x_j = torch.stack([transform(image) for image in batch])
    loss = criterion(model(x_i), model(x_j))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- cosine_rate excluded
    scheduler.step()  # <- cosine_rate
    losses.append(loss.item())
