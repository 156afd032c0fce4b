# SPDX-License-Identifier: Apache-2.0
"""A VAE-GAN on 8x8 blobs: encoder and decoder under one Adam, a spectrally normed critic under another."""
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

torch.set_num_threads(1)
torch.manual_seed(17)

LATENT, CH, BATCH, STEPS = 6, 8, 12, 5
BETA, GAMMA = 0.5, 0.3


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, CH, 4, stride=2, padding=1)
        self.conv2 = nn.Conv2d(CH, 2 * CH, 4, stride=2, padding=1)
        self.mu = nn.Linear(2 * CH * 4, LATENT)
        self.logvar = nn.Linear(2 * CH * 4, LATENT)

    def forward(self, x):
        h = F.leaky_relu(self.conv1(x), 0.2)
        h = F.leaky_relu(self.conv2(h), 0.2).flatten(1)
        return self.mu(h), self.logvar(h)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(LATENT, 2 * CH * 4)
        self.up1 = nn.ConvTranspose2d(2 * CH, CH, 4, stride=2, padding=1)
        self.up2 = nn.ConvTranspose2d(CH, 1, 4, stride=2, padding=1)

    def forward(self, z):
        h = F.relu(self.fc(z)).view(-1, 2 * CH, 2, 2)
        return torch.sigmoid(self.up2(F.relu(self.up1(h))))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = spectral_norm(nn.Conv2d(1, CH, 4, stride=2, padding=1))  # <- power_state
        self.fc1 = spectral_norm(nn.Linear(CH * 16, 16))  # <- power_state
        self.fc2 = nn.Linear(16, 1)

    def forward(self, x):
        h = F.leaky_relu(self.conv(x), 0.2).flatten(1)  # <- power_state
        return self.fc2(F.leaky_relu(self.fc1(h), 0.2)).squeeze(1)  # <- power_state


def images():
    gen = torch.Generator().manual_seed(4)
    grid = torch.arange(8.0)
    for _ in range(STEPS):
        centre = 2 + 4 * torch.rand(BATCH, 2, generator=gen)
        width = 1 + torch.rand(BATCH, 1, 1, generator=gen)
        dy = (grid[None, :] - centre[:, :1]) ** 2
        dx = (grid[None, :] - centre[:, 1:]) ** 2
        x = torch.exp(-(dy[:, :, None] + dx[:, None, :]) / (2 * width**2))
        noise = torch.randn(2, BATCH, LATENT, generator=gen)
        yield x[:, None], noise[0], noise[1]


encoder, decoder, critic = Encoder(), Decoder(), Critic()
torch.save(nn.ModuleDict({"enc": encoder, "dec": decoder, "critic": critic}).state_dict(), sys.argv[1])
opt_vae = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=3e-3, betas=(0.5, 0.999))
opt_critic = torch.optim.Adam(critic.parameters(), lr=4e-3, betas=(0.5, 0.999))
bce = nn.BCEWithLogitsLoss()

losses = []
for x, eps, prior in images():
    opt_vae.zero_grad()

    # critic: real images against decoded prior samples
    fake = decoder(prior)
    real_logit = critic(x)
    fake_logit = critic(fake.detach())  # <- fake_detach
    real_loss = bce(real_logit, torch.full((BATCH,), 0.9))
    fake_loss = bce(fake_logit, torch.zeros(BATCH))  # <- one_sided
    critic_loss = real_loss + fake_loss
    opt_critic.zero_grad()
    critic_loss.backward()
    opt_critic.step()

    # encoder and decoder
    mu, logvar = encoder(x)
    z = mu + torch.exp(0.5 * logvar) * eps  # <- half_logvar
    recon = F.mse_loss(decoder(z), x, reduction="sum") / BATCH
    kl = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp(), dim=1).mean()  # <- kl_sum
    fool = bce(critic(fake), torch.ones(BATCH))
    vae_loss = recon + BETA * kl + GAMMA * fool
    vae_loss.backward()
    opt_vae.step()
    losses.append(critic_loss.item() + vae_loss.item())
print(losses)
