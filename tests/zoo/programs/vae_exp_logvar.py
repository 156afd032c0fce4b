# SPDX-License-Identifier: Apache-2.0
"""Variational autoencoder: the log-variance head is not bounded before exp."""

import torch
from torch import nn
from torch.nn import functional as F


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(20, 32)
        self.mean = nn.Linear(32, 4)
        self.logvar = nn.Linear(32, 4)

    def forward(self, x):
        h = F.relu(self.body(x))
        mean, logvar = self.mean(h), self.logvar(h)
        variance = torch.exp(logvar)  # <- origin
        return mean, logvar, variance


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.decoder = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 20))

    def forward(self, x):
        mean, logvar, variance = self.encoder(x)
        z = mean + variance.sqrt() * torch.randn_like(mean)
        divergence = 0.5 * (variance + mean**2 - 1 - logvar).sum(1).mean()
        return F.mse_loss(self.decoder(z), x) + 1e-6 * divergence


torch.manual_seed(0)
model = VAE()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(5):
    x = torch.rand(16, 20)
    if step == 3:
        x[7] *= 3000
    loss = model(x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
