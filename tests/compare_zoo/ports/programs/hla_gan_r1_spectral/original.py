# SPDX-License-Identifier: Apache-2.0
"""Non-saturating GAN on a ring of Gaussians: spectral-norm critic, R1 penalty, two Adams, EMA
generator."""
import copy
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import spectral_norm

Z, HID, BS, STEPS = 4, 16, 20, 4


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(Z, HID), nn.LeakyReLU(0.2),  # <- leak_slope
                                 nn.Linear(HID, HID), nn.LeakyReLU(0.2),  # <- leak_slope
                                 nn.Linear(HID, 2))

    def forward(self, z):
        return self.net(z)  # <- leak_slope


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = nn.Linear(2, HID)
        self.l2 = spectral_norm(nn.Linear(HID, HID))  # <- power_skipped
        self.l3 = nn.Linear(HID, 1)

    def forward(self, x):
        return self.l3(torch.tanh(self.l2(F.softplus(self.l1(x))))).squeeze(1)


class GAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.G, self.D = Generator(), Discriminator()


def real_batch(g):
    k = torch.randint(0, 8, (BS,), generator=g).float()
    centre = torch.stack([torch.cos(k * math.pi / 4), torch.sin(k * math.pi / 4)], 1)
    return 2 * centre + 0.05 * torch.randn(BS, 2, generator=g)


torch.manual_seed(0)
gan = GAN()
torch.save(gan.state_dict(), sys.argv[1])
G, D = gan.G, gan.D
G_ema = copy.deepcopy(G)
opt_g = torch.optim.Adam(G.parameters(), lr=2e-3, betas=(0.0, 0.9), eps=1e-5)  # <- second_moment
opt_d = torch.optim.Adam(D.parameters(), lr=4e-3, betas=(0.0, 0.9), eps=1e-5)  # <- second_moment

gen = torch.Generator().manual_seed(64)
losses = []
for step in range(STEPS):
    real = real_batch(gen)
    z_d = torch.randn(BS, Z, generator=gen)
    z_g = torch.randn(BS, Z, generator=gen)

    # discriminator
    real.requires_grad_(True)
    d_real = D(real)
    (grad_real,) = torch.autograd.grad(d_real.sum(), real, create_graph=True)
    r1 = grad_real.pow(2).sum(1).mean()  # <- penalty_half
    fake = G(z_d).detach()
    d_loss = (F.softplus(-d_real).mean()  # <- power_skipped penalty_half
              + F.softplus(D(fake)).mean()  # <- power_skipped
              + 0.5 * r1)  # <- penalty_half
    opt_d.zero_grad()
    d_loss.backward()
    opt_d.step()  # <- second_moment stale_critic

    # generator
    D.requires_grad_(False)
    g_loss = F.softplus(-D(G(z_g))).mean()  # <- stale_critic
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()  # <- second_moment
    D.requires_grad_(True)

    with torch.no_grad():
        for pe, p in zip(G_ema.parameters(), G.parameters()):
            pe.copy_(p.lerp(pe, 0.95))
    losses.append(d_loss.item() + g_loss.item())
    print(f"[{step}] D {d_loss.item():.4f} G {g_loss.item():.4f} R1 {r1.item():.5f}")
print(losses)
