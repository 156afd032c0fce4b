# SPDX-License-Identifier: Apache-2.0
"""A conditional GAN with spectral norm and a projection discriminator (Miyato et al., 2018): hinge
losses, two steps of the discriminator to one of the generator, an average of the generator drawn.
"""

import copy
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import spectral_norm

LATENT, CLASSES, WIDTH, BATCH = 6, 4, 6, 4


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.label = nn.Embedding(CLASSES, LATENT)
        self.fc = nn.Linear(LATENT, 2 * WIDTH * 4, bias=False)
        self.bn0 = nn.BatchNorm2d(2 * WIDTH)
        self.up = nn.ConvTranspose2d(2 * WIDTH, WIDTH, 4, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTH)
        self.out = nn.ConvTranspose2d(WIDTH, 3, 4, stride=2, padding=1)

    def forward(self, z, y):
        h = self.fc(z * self.label(y)).view(-1, 2 * WIDTH, 2, 2)  # <- places
        h = F.relu(self.bn0(h))  # <- statistics
        h = F.relu(self.bn1(self.up(h)))  # <- turned statistics
        return torch.tanh(self.out(h))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = spectral_norm(nn.Conv2d(3, WIDTH, 3, stride=1, padding=1))  # <- sigma iterated
        self.conv2 = spectral_norm(
            nn.Conv2d(WIDTH, 2 * WIDTH, 4, stride=2, padding=1)
        )  # <- sigma iterated
        self.fc = spectral_norm(nn.Linear(2 * WIDTH, 1))  # <- sigma iterated
        self.label = spectral_norm(nn.Embedding(CLASSES, 2 * WIDTH))  # <- sigma iterated
        self.act = nn.LeakyReLU(0.1)  # <- slope

    def forward(self, x, y):
        h = self.act(self.conv1(x))  # <- slope sigma iterated
        h = self.act(self.conv2(h))  # <- slope sigma iterated
        h = h.sum(dim=(2, 3))  # <- pooled
        return self.fc(h).squeeze(1) + (self.label(y) * h).sum(dim=1)  # <- projected sigma iterated


def noise(rng):
    z = torch.from_numpy(rng.normal(size=(BATCH, LATENT)).astype(np.float32))
    return z, torch.from_numpy(rng.integers(0, CLASSES, BATCH))


torch.manual_seed(239)
generator, discriminator = Generator(), Discriminator()
averaged = copy.deepcopy(generator)
torch.save({"g": generator.state_dict(), "d": discriminator.state_dict()}, sys.argv[1])
g_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.0, 0.9))  # <- momentum
d_optimizer = torch.optim.Adam(discriminator.parameters(), lr=4e-3, betas=(0.0, 0.9))  # <- momentum
rng = np.random.default_rng(241)
losses = []
for _ in range(3):
    for _ in range(2):
        real = torch.from_numpy(rng.uniform(-1, 1, (BATCH, 3, 8, 8)).astype(np.float32))
        labels = torch.from_numpy(rng.integers(0, CLASSES, BATCH))
        z, y = noise(rng)
        with torch.no_grad():
            fake = generator(z, y)
        d_real, d_fake = discriminator(real, labels), discriminator(fake, y)  # <- projected
        d_loss = F.relu(1.0 - d_real).mean() + F.relu(1.0 + d_fake).mean()  # <- hinge
        d_optimizer.zero_grad()
        d_loss.backward()
        d_optimizer.step()  # <- momentum
        losses.append(d_loss.item())
    z, y = noise(rng)
    g_loss = -discriminator(generator(z, y), y).mean()
    g_optimizer.zero_grad()
    g_loss.backward()
    g_optimizer.step()  # <- momentum
    with torch.no_grad():
        for old, new in zip(averaged.parameters(), generator.parameters()):
            old.lerp_(new, 0.2)
        for old, new in zip(averaged.buffers(), generator.buffers()):
            old.copy_(new)  # <- buffers
    losses.append(g_loss.item())
averaged.eval()
with torch.no_grad():
    losses.append(averaged(z, y).square().mean().item())
