# SPDX-License-Identifier: Apache-2.0
"""The same with one layer for both moments, logits, and torch.distributions."""

import sys

import numpy as np
import torch
from torch import distributions, nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(36, 24), nn.ReLU(), nn.Linear(24, 10))
        self.decoder = nn.Sequential(nn.Linear(5, 24), nn.ReLU(), nn.Linear(24, 36))

    def forward(self, x, noise):
        mean, log_variance = self.encoder(x).chunk(2, -1)
        deviation = (log_variance / 2).exp()  # <- std
        return self.decoder(mean + deviation * noise), mean, deviation  # <- std


net = Net()
old = torch.load(sys.argv[1])
new = {}
for kind in ("weight", "bias"):
    new[f"encoder.0.{kind}"] = old[f"fc1.{kind}"]
    new[f"encoder.2.{kind}"] = torch.cat((old[f"mean.{kind}"], old[f"logvar.{kind}"]))
    new[f"decoder.0.{kind}"], new[f"decoder.2.{kind}"] = old[f"fc3.{kind}"], old[f"fc4.{kind}"]
net.load_state_dict(new)
adam = torch.optim.Adam(net.parameters(), lr=1e-2)
rng = np.random.default_rng(20)
losses = []
for _ in range(3):
    x = torch.from_numpy(rng.random((6, 36)) < 0.4).float()
    noise = torch.from_numpy(rng.standard_normal((6, 5), dtype=np.float32))
    logits, mean, deviation = net(x, noise)
    error = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum()  # <- mean
    posterior = distributions.Normal(mean, deviation)
    prior = distributions.Normal(torch.zeros(5), torch.ones(5))
    kl = distributions.kl_divergence(posterior, prior).sum()  # <- kl halved sign
    loss = error + kl  # <- kl sign mean halved
    adam.zero_grad()
    loss.backward()
    adam.step()
    losses.append(loss.item())
