# SPDX-License-Identifier: Apache-2.0
"""Variational autoencoder on binary images: evidence lower bound in nats for each batch."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Normal, kl_divergence

torch.set_num_threads(1)
torch.manual_seed(22)


class VAE(nn.Module):
    def __init__(self, pixels=64, hidden=32, latent=6):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(pixels, hidden), nn.BatchNorm1d(hidden), nn.Softplus())
        self.mean = nn.Linear(hidden, latent)
        self.logvar = nn.Linear(hidden, latent)
        self.dec = nn.Sequential(nn.Linear(latent, hidden), nn.Tanh(), nn.Linear(hidden, pixels))

    def forward(self, x, eps):
        h = self.enc(x)
        q = Normal(self.mean(h), torch.exp(0.5 * self.logvar(h)))
        logits = self.dec(q.loc + q.scale * eps)
        rec = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1)
        prior = Normal(torch.zeros_like(q.loc), torch.ones_like(q.loc))
        return -rec - kl_divergence(q, prior).sum(1)


vae = VAE()
vae.enc[1].running_mean.normal_(0, 0.3)
vae.enc[1].running_var.uniform_(0.1, 0.8)
nn.init.uniform_(vae.enc[1].weight, 0.5, 1.5)
nn.init.normal_(vae.dec[2].weight, std=0.5)
torch.save(vae.state_dict(), sys.argv[1])
vae.eval()

g = torch.Generator().manual_seed(112)
losses = []
with torch.no_grad():
    for b in range(4):
        x = (torch.rand(10, 64, generator=g) < 0.3).float()
        eps = torch.randn(10, 6, generator=g)
        elbo = vae(x, eps)
        losses.append(elbo.mean().item())
        print(f"batch {b}: elbo {losses[-1]:.3f} nats")
print(losses)
