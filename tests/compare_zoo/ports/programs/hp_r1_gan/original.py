# SPDX-License-Identifier: Apache-2.0
"""A small GAN with the non-saturating loss; R1 penalty on real images every second step, by double backward."""
import sys

import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
LATENT, GAMMA, EVERY = 6, 2.0, 2


class Generator(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.fc = nn.Linear(LATENT, width * 4)
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.to_gray = nn.Conv2d(width, 1, 1)

    def forward(self, z):
        z = z * torch.rsqrt(z.pow(2).mean(1, keepdim=True) + 1e-8)
        x = F.leaky_relu(self.fc(z), 0.2).view(len(z), -1, 2, 2)
        for conv in (self.conv1, self.conv2):
            x = F.interpolate(x, scale_factor=2, mode="nearest")
            x = F.leaky_relu(conv(x), 0.2)
        return torch.tanh(self.to_gray(x))


class Discriminator(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 4, stride=2, padding=1)
        self.conv2 = nn.Conv2d(width, 2 * width, 4, stride=2, padding=1)
        self.fc = nn.Linear(2 * width * 4, 1)

    def forward(self, x):
        x = F.softplus(self.conv1(x))
        x = F.softplus(self.conv2(x))
        return self.fc(x.flatten(1)).squeeze(1)


def r1_penalty(D, real):
    real = real.detach().requires_grad_(True)
    score = D(real)
    grad, = torch.autograd.grad(score.sum(), real, create_graph=True)
    return grad.pow(2).sum((1, 2, 3)).mean()


torch.manual_seed(111)
net = nn.ModuleDict({"G": Generator(), "D": Discriminator()})
torch.save(net.state_dict(), sys.argv[1])
G, D = net["G"], net["D"]
opt_g = torch.optim.Adam(G.parameters(), lr=2e-3, betas=(0.0, 0.99), eps=1e-6)
opt_d = torch.optim.Adam(D.parameters(), lr=4e-3, betas=(0.0, 0.99), eps=1e-6)

gen = torch.Generator().manual_seed(112)
ramp = torch.linspace(-1, 1, 8)
losses = []
for step in range(5):
    angle = torch.rand(8, generator=gen) * 6.28
    real = torch.tanh(2 * (angle.cos()[:, None, None] * ramp[:, None] + angle.sin()[:, None, None] * ramp))[:, None]
    # discriminator
    fake = G(torch.randn(8, LATENT, generator=gen)).detach()
    d_loss = F.softplus(D(fake)).mean() + F.softplus(-D(real)).mean()
    if step % EVERY == 0:
        d_loss = d_loss + GAMMA / 2 * EVERY * r1_penalty(D, real)
    opt_d.zero_grad()
    d_loss.backward()
    opt_d.step()
    # generator
    g_loss = F.softplus(-D(G(torch.randn(8, LATENT, generator=gen)))).mean()
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()
    losses += [d_loss.item(), g_loss.item()]
print(losses)
