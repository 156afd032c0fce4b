# SPDX-License-Identifier: Apache-2.0
"""A variational autoencoder in the idiom of old: sums in place of means, the divergence written out,
noise by hand, instance norm, a rate set within the loop, Adamax.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

SIZE, CH, LATENT, BATCH = 8, 6, 5, 6


class VAE(nn.Module):
    def __init__(self):
        super(VAE, self).__init__()  # noqa: UP008
        self.conv1 = nn.Conv2d(1, CH, 4, 2, 1)
        self.norm1 = nn.InstanceNorm2d(CH, affine=True)
        self.conv2 = nn.Conv2d(CH, 2 * CH, 4, 2, 1)
        self.fc_mu = nn.Linear(8 * CH, LATENT)
        self.fc_logvar = nn.Linear(8 * CH, LATENT)  # <- spread
        self.fc_up = nn.Linear(LATENT, 8 * CH)
        self.deconv1 = nn.ConvTranspose2d(2 * CH, CH, 4, 2, 1)  # <- raised
        self.norm2 = nn.InstanceNorm2d(CH, affine=True)
        self.deconv2 = nn.ConvTranspose2d(CH, 1, 4, 2, 1)  # <- raised

    def encode(self, x):
        h = F.leaky_relu(self.norm1(self.conv1(x)), 0.2)
        h = F.leaky_relu(self.conv2(h), 0.2)
        h = h.view(-1, 8 * CH)  # <- flattened
        return self.fc_mu(h), self.fc_logvar(h)  # <- flattened

    def decode(self, z):
        h = F.relu(self.fc_up(z)).view(-1, 2 * CH, 2, 2)
        h = F.relu(self.norm2(self.deconv1(h)))  # <- raised
        return torch.sigmoid(self.deconv2(h))  # <- raised

    def forward(self, x, eps):
        mu, logvar = self.encode(x)
        std = logvar.mul(0.5).exp()  # <- spread
        z = eps.mul(std).add(mu)  # <- spread
        return self.decode(z), mu, logvar


def loss_function(recon_x, x, mu, logvar, beta):
    bce = F.binary_cross_entropy(recon_x, x, reduction="sum")  # <- pixels
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())  # <- spread
    return (bce + beta * kld) / x.size(0)  # <- annealed pixels


torch.manual_seed(251)
model = VAE()
with torch.no_grad():
    for norm in (model.norm1, model.norm2):
        norm.weight.add_(0.3 * torch.randn(CH))
        norm.bias.add_(0.3 * torch.randn(CH))
    model.fc_logvar.bias.fill_(-1.0)
torch.save(model.state_dict(), sys.argv[1])

optimizer = torch.optim.Adamax(model.parameters(), lr=4e-3, eps=1e-4)
generator = torch.Generator().manual_seed(252)
losses = []
for epoch in range(5):
    for group in optimizer.param_groups:
        group["lr"] = 4e-3 * 0.5 ** (epoch // 2)
    data = torch.rand(BATCH, 1, SIZE, SIZE, generator=generator).gt(0.7).float()
    eps = torch.randn(BATCH, LATENT, generator=generator)
    beta = min(1.0, epoch / 3)  # <- annealed
    recon, mu, logvar = model(data, eps)
    loss = loss_function(recon, data, mu, logvar, beta)  # <- annealed
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
