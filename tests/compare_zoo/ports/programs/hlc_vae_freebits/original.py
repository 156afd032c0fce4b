# SPDX-License-Identifier: Apache-2.0
"""A small VAE on binary vectors, with free bits and KL warm-up, trained by Adam."""
import sys
import torch
from torch import nn
import torch.nn.functional as F


class VAE(nn.Module):
    def __init__(self, d=14, h=20, z=5):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(d, h), nn.Tanh())
        self.mu = nn.Linear(h, z)
        self.logvar = nn.Linear(h, z)
        self.dec = nn.Sequential(nn.Linear(z, h), nn.SiLU(), nn.Linear(h, d))  # <- silu

    def forward(self, x, eps):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.exp(0.5 * logvar) * eps  # <- sigma
        return self.dec(z), mu, logvar  # <- silu


def elbo_loss(logits, x, mu, logvar, beta, free_bits=0.04):
    rec = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / x.shape[0]
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp())  # <- sigma
    kl = kl.mean(0).clamp(min=free_bits).sum()  # <- free_bits
    return rec + beta * kl  # <- warmup


torch.manual_seed(0)
model = VAE()
torch.save(model.state_dict(), sys.argv[1])
g = torch.Generator().manual_seed(11)
batches = [((torch.rand(16, 14, generator=g) < 0.3).float(),
            torch.randn(16, 5, generator=g)) for _ in range(5)]
opt = torch.optim.Adam(  # <- bias_correction
    model.parameters(), lr=4e-3, betas=(0.9, 0.98), eps=1e-4)  # <- bias_correction
losses = []
for step, (x, eps) in enumerate(batches):
    beta = min(1.0, (step + 1) / 4)  # <- warmup
    logits, mu, logvar = model(x, eps)
    loss = elbo_loss(logits, x, mu, logvar, beta)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 2.0)
    opt.step()  # <- bias_correction
    losses.append(loss.item())
print(losses)
