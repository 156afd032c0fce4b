# SPDX-License-Identifier: Apache-2.0
"""Conditional SN-GAN with hinge loss, spectral norm in the discriminator, averaged generator."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import spectral_norm
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

torch.set_num_threads(1)
CLASSES, Z, DATA = 3, 4, 6


class Gen(nn.Module):
    def __init__(self, h=14):
        super().__init__()
        self.label = nn.Embedding(CLASSES, h)
        self.fc1 = nn.Linear(Z, h)
        self.fc2 = nn.Linear(h, DATA)

    def forward(self, z, y):
        h = self.fc1(z) * (1 + self.label(y))  # <- film_offset
        return torch.tanh(self.fc2(F.mish(h)))


class Disc(nn.Module):
    def __init__(self, h=14):
        super().__init__()
        self.fc1 = spectral_norm(nn.Linear(DATA, h))  # <- one_iteration
        self.fc2 = spectral_norm(nn.Linear(h, h))  # <- one_iteration
        self.out = nn.Linear(h, 1)
        self.label = nn.Embedding(CLASSES, h)

    def forward(self, x, y):
        h = F.mish(self.fc2(F.mish(self.fc1(x))))  # <- one_iteration
        return self.out(h)[:, 0] + (self.label(y) * h).sum(1)


class GAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.g = Gen()
        self.d = Disc()


torch.manual_seed(0)
gan = GAN()
torch.save(gan.state_dict(), sys.argv[1])
g, d = gan.g, gan.d
opt_g = torch.optim.NAdam(g.parameters(), lr=2e-3, eps=1e-5)  # <- nadam_bias
opt_d = torch.optim.SGD(d.parameters(), lr=0.05, momentum=0.5)
ema = AveragedModel(g, multi_avg_fn=get_ema_multi_avg_fn(0.8))  # <- ema_init

rng = torch.Generator().manual_seed(18)
losses = []
for it in range(4):
    y = torch.randint(0, CLASSES, (10,), generator=rng)
    real = torch.tanh(torch.randn(10, DATA, generator=rng) * 0.4 + y[:, None] - 1)
    loss_d = 0.0
    for _ in range(2):
        z = torch.randn(10, Z, generator=rng)
        with torch.no_grad():
            fake = g(z, y)
        s_real = d(real, y)
        s_fake = d(fake, y)  # <- one_iteration
        loss = F.relu(1 - s_real).mean() + F.relu(1 + s_fake).mean()
        opt_d.zero_grad()
        loss.backward()
        opt_d.step()
        loss_d += loss.item() / 2

    d.eval()                       # no power iteration in the generator's turn
    z = torch.randn(10, Z, generator=rng)
    fake = g(z, y)
    loss_g = -d(fake, y).mean() + 0.5 * F.l1_loss(fake.mean(0), real.mean(0))  # <- match_norm
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()  # <- nadam_bias
    with torch.no_grad():
        gap = (d(ema(z, y), y) - d(g(z, y), y)).pow(2).mean()
    d.train()
    ema.update_parameters(g)  # <- ema_init
    losses.append(loss_d + loss_g.item() + gap.item())

print(losses)
