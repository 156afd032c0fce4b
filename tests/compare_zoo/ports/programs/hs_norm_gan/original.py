# SPDX-License-Identifier: Apache-2.0
"""Signal GAN: weight-normalised generator, spectrally normalised critic by torch parametrizations, logistic loss."""
import sys

import torch
from torch import nn
import torch.nn.functional as F
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

torch.set_num_threads(1)
torch.manual_seed(90)

LATENT, CHANNELS, LENGTH, BATCH, STEPS = 5, 8, 16, 8, 6


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.start = weight_norm(nn.Linear(LATENT, CHANNELS * 4))
        self.up1 = weight_norm(nn.ConvTranspose1d(CHANNELS, CHANNELS, 4, stride=2, padding=1))
        self.up2 = weight_norm(nn.ConvTranspose1d(CHANNELS, 1, 4, stride=2, padding=1))

    def forward(self, z):
        x = F.silu(self.start(z)).view(-1, CHANNELS, 4)
        return torch.tanh(self.up2(F.silu(self.up1(x))))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = spectral_norm(nn.Conv1d(1, CHANNELS, 5, stride=2, padding=2))
        self.conv2 = spectral_norm(nn.Conv1d(CHANNELS, 12, 5, stride=2, padding=2))
        self.fc = spectral_norm(nn.Linear(12 * 4, 1))

    def forward(self, x):
        x = F.leaky_relu(self.conv1(x), 0.2)
        x = F.leaky_relu(self.conv2(x), 0.2)
        return self.fc(x.flatten(1)).squeeze(-1)


generator, critic = Generator(), Critic()
torch.save({**{"G." + k: v for k, v in generator.state_dict().items()},
            **{"D." + k: v for k, v in critic.state_dict().items()}}, sys.argv[1])

g = torch.Generator().manual_seed(2)
grid = torch.linspace(0, 6.2832, LENGTH)
opt_d = torch.optim.Adam(critic.parameters(), lr=4e-3, betas=(0.0, 0.9))
opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.9))

losses = []
for step in range(STEPS):
    phase = 6.2832 * torch.rand(BATCH, 1, 1, generator=g)
    real = 0.8 * torch.sin(grid + phase) + 0.05 * torch.randn(BATCH, 1, LENGTH, generator=g)
    fake = generator(torch.randn(BATCH, LATENT, generator=g)).detach()
    with parametrize.cached():
        d_loss = F.softplus(-critic(real)).mean() + F.softplus(critic(fake)).mean()
    opt_d.zero_grad()
    d_loss.backward()
    opt_d.step()

    fake = generator(torch.randn(BATCH, LATENT, generator=g))
    g_loss = F.softplus(-critic(fake)).mean()
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()
    losses.append(d_loss.item() + g_loss.item())

print(losses)
