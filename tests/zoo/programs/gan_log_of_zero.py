# SPDX-License-Identifier: Apache-2.0
"""GAN with the textbook loss log(1 - D(G(z))): the discriminator saturates to exactly one."""

import torch
from torch import nn

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
discriminator = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())
generator_optimizer = torch.optim.SGD(generator.parameters(), lr=0.05)
discriminator_optimizer = torch.optim.SGD(discriminator.parameters(), lr=0.05)
for step in range(4):
    real = torch.randn(8, 2) + 2
    if step == 2:
        with torch.no_grad():
            discriminator[2].bias.fill_(60.0)
    fake = generator(torch.randn(8, 4))
    discriminator_optimizer.zero_grad()
    d_loss = -(
        torch.log(discriminator(real)) + torch.log(1 - discriminator(fake.detach()))  # <- origin
    ).mean()
    d_loss.backward()
    discriminator_optimizer.step()
    generator_optimizer.zero_grad()
    g_loss = -torch.log(discriminator(fake)).mean()
    g_loss.backward()
    generator_optimizer.step()
    print(step, d_loss.item().hex(), g_loss.item().hex())
