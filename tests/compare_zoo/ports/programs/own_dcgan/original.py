# SPDX-License-Identifier: Apache-2.0
"""DCGAN: transposed convolutions and BatchNorm against strided convolutions, two Adams."""

import sys

import torch
from torch import nn

NZ, NGF, NDF, BATCH = 10, 6, 6, 5


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(NZ, NGF * 2, 4, 1, 0, bias=False),
            nn.BatchNorm2d(NGF * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(NGF * 2, NGF, 4, 2, 1, bias=False),  # <- turned
            nn.BatchNorm2d(NGF),
            nn.ReLU(True),
            nn.ConvTranspose2d(NGF, 3, 4, 2, 1, bias=False),  # <- turned
            nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z)  # <- turned


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(3, NDF, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2),  # <- slope
            nn.Conv2d(NDF, NDF * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(NDF * 2),  # <- together
            nn.LeakyReLU(0.2),  # <- slope
            nn.Conv2d(NDF * 2, 1, 4, 1, 0, bias=False),
        )

    def forward(self, image):
        return self.main(image).view(-1)  # <- slope together


def weights_init(m):
    if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(m.weight, 0.0, 0.1)
    elif isinstance(m, nn.BatchNorm2d):
        nn.init.normal_(m.weight, 1.0, 0.2)
        nn.init.normal_(m.bias, 0.0, 0.1)


torch.manual_seed(51)
netG, netD = Generator(), Discriminator()
netG.apply(weights_init)
netD.apply(weights_init)
torch.save({"G": netG.state_dict(), "D": netD.state_dict()}, sys.argv[1])

criterion = nn.BCEWithLogitsLoss()
optimizerD = torch.optim.Adam(netD.parameters(), lr=0.01, betas=(0.5, 0.999), eps=1e-4)  # <- betas
optimizerG = torch.optim.Adam(netG.parameters(), lr=0.01, betas=(0.5, 0.999), eps=1e-4)  # <- betas
generator = torch.Generator().manual_seed(52)
losses = []
for _ in range(4):
    real = torch.rand(BATCH, 3, 16, 16, generator=generator) * 2 - 1
    noise = torch.randn(BATCH, NZ, 1, 1, generator=generator)
    netD.zero_grad()
    real_out = netD(real)  # <- together
    errD_real = criterion(real_out, torch.full((BATCH,), 0.9))
    errD_real.backward()
    fake = netG(noise)
    fake_out = netD(fake.detach())  # <- together
    errD_fake = criterion(fake_out, torch.zeros(BATCH))
    errD_fake.backward()
    optimizerD.step()  # <- betas stale
    netG.zero_grad()
    output = netD(fake)  # <- stale together
    errG = criterion(output, torch.ones(BATCH))
    errG.backward()
    optimizerG.step()  # <- betas
    losses.append((errD_real + errD_fake + errG).item())
