# SPDX-License-Identifier: Apache-2.0
"""WGAN with gradient penalty: two models, two optimizers, double backward."""

import torch
from torch import nn

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 2))
critic = nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 1))
generator_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3)
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
for step in range(3):
    for _ in range(2):
        real, fake = torch.randn(8, 2) + 1, generator(torch.randn(8, 3)).detach()
        mix = torch.lerp(real, fake, torch.rand(8, 1)).requires_grad_()
        (slope,) = torch.autograd.grad(critic(mix).sum(), mix, create_graph=True)
        penalty = (slope.norm(dim=1) - 1).square().mean()
        critic_loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
        critic_optimizer.zero_grad()
        critic_loss.backward()
        critic_optimizer.step()
    generator_loss = -critic(generator(torch.randn(8, 3))).mean()
    generator_optimizer.zero_grad()
    generator_loss.backward()
    generator_optimizer.step()
    print(step, critic_loss.item().hex(), generator_loss.item().hex())
