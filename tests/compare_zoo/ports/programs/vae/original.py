# SPDX-License-Identifier: Apache-2.0
"""A variational autoencoder on binary images (Kingma and Welling, 2014)."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.mean, self.logvar = nn.Linear(36, 24), nn.Linear(24, 5), nn.Linear(24, 5)
        self.fc3, self.fc4 = nn.Linear(5, 24), nn.Linear(24, 36)

    def forward(self, x, noise):
        h = F.relu(self.fc1(x))
        mu, logvar = self.mean(h), self.logvar(h)
        std = torch.exp(0.5 * logvar)  # <- std
        z = mu + noise * std  # <- std
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar


torch.manual_seed(16)
model = VAE()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
rng = np.random.default_rng(20)
losses = []
for _ in range(3):
    x = torch.from_numpy(rng.random((6, 36)) < 0.4).float()
    noise = torch.from_numpy(rng.standard_normal((6, 5), dtype=np.float32))
    again, mu, logvar = model(x, noise)
    bce = F.binary_cross_entropy(again, x, reduction="sum")  # <- mean
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())  # <- kl sign halved
    loss = bce + kld  # <- kl sign mean halved
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
