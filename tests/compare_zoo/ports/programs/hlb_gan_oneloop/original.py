# SPDX-License-Identifier: Apache-2.0
"""Non-saturating GAN on a ring of Gaussians, with one Adam for each network."""
import sys

import torch
from torch import nn

LATENT = 6
STEPS = 4


class GAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.G = nn.Sequential(
            nn.Linear(LATENT, 20), nn.SiLU(),
            nn.Linear(20, 20), nn.SiLU(),
            nn.Linear(20, 2),
        )
        self.D = nn.Sequential(
            nn.Linear(2, 20), nn.LeakyReLU(0.2),  # <- leaky_slope
            nn.Linear(20, 20), nn.LeakyReLU(0.2),  # <- leaky_slope
            nn.Linear(20, 1),
        )


def real_batch(gen, n=24):
    k = torch.randint(0, 8, (n,), generator=gen).float()
    angle = k * (2 * torch.pi / 8)
    centre = torch.stack([torch.cos(angle), torch.sin(angle)], dim=1)  # <- sin_first
    return centre + 0.05 * torch.randn(n, 2, generator=gen)


torch.manual_seed(0)
net = GAN()
torch.save(net.state_dict(), sys.argv[1])

opt_d = torch.optim.Adam(net.D.parameters(), lr=2e-3, betas=(0.5, 0.99))  # <- beta_one
opt_g = torch.optim.Adam(net.G.parameters(), lr=1e-3, betas=(0.5, 0.99))  # <- beta_one
bce = nn.BCEWithLogitsLoss()
gen = torch.Generator().manual_seed(5)

losses = []
for step in range(STEPS):
    real = real_batch(gen)
    n = real.shape[0]
    ones, zeros = torch.ones(n, 1), torch.zeros(n, 1)

    # --- discriminator (label smoothing on the real side only)
    z = torch.randn(n, LATENT, generator=gen)
    opt_d.zero_grad()
    fake = net.G(z).detach()
    d_loss = bce(net.D(real), ones * 0.9) + bce(net.D(fake), zeros)  # <- leaky_slope smooth_half
    d_loss.backward()
    opt_d.step()  # <- beta_one

    # --- generator, with fresh noise, against the updated discriminator
    z = torch.randn(n, LATENT, generator=gen)
    opt_g.zero_grad()
    g_loss = bce(net.D(net.G(z)), ones)  # <- leaky_slope saturating
    g_loss.backward()
    opt_g.step()  # <- beta_one

    losses.append(d_loss.item() + g_loss.item())
    print(f"step {step}: D {d_loss.item():.4f}  G {g_loss.item():.4f}", file=sys.stderr)

print(losses)
