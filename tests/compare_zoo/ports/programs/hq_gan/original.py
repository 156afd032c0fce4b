# SPDX-License-Identifier: Apache-2.0
"""DCGAN on small blobs, both players updated from the same point (simultaneous descent)."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

NZ, BATCH, STEPS = 12, 8, 5


class Generator(nn.Module):
    def __init__(self, nz=NZ, ngf=8):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False),
            nn.BatchNorm2d(ngf * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ngf),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf, 1, 3, 1, 1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z[:, :, None, None])


class Discriminator(nn.Module):
    def __init__(self, ndf=8):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, ndf, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            nn.Linear(ndf * 2 * 4, 1),
        )

    def forward(self, x):
        return self.main(x).squeeze(1)


def weights_init(m):
    if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(m.weight, 0.0, 0.1)
    elif isinstance(m, nn.BatchNorm2d):
        nn.init.normal_(m.weight, 1.0, 0.1)
        nn.init.zeros_(m.bias)


def real_batch(gen):
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, 8), torch.linspace(-1, 1, 8), indexing="ij")
    c = torch.rand(BATCH, 2, generator=gen) - 0.5
    d2 = (xx - c[:, 0, None, None]) ** 2 + (yy - c[:, 1, None, None]) ** 2
    return (2 * torch.exp(-4 * d2) - 1)[:, None]


torch.manual_seed(11)
netG, netD = Generator(), Discriminator()
netG.apply(weights_init)
netD.apply(weights_init)
torch.save({**{"G." + k: v for k, v in netG.state_dict().items()},
            **{"D." + k: v for k, v in netD.state_dict().items()}}, sys.argv[1])

optG = torch.optim.Adam(netG.parameters(), lr=2e-3, betas=(0.5, 0.999))
optD = torch.optim.Adam(netD.parameters(), lr=2e-3, betas=(0.5, 0.999))
bce = nn.BCEWithLogitsLoss()
gen = torch.Generator().manual_seed(77)

losses = []
for step in range(STEPS):
    real = real_batch(gen)
    z = torch.randn(BATCH, NZ, generator=gen)
    fake = netG(z)

    # discriminator
    optD.zero_grad()
    errD_real = bce(netD(real), torch.full((BATCH,), 0.9))
    errD_fake = bce(netD(fake.detach()), torch.zeros(BATCH))
    errD = errD_real + errD_fake
    errD.backward()

    # generator, against the discriminator as it still is
    for p in netD.parameters():
        p.requires_grad_(False)
    optG.zero_grad()
    errG = bce(netD(fake), torch.ones(BATCH))
    errG.backward()
    for p in netD.parameters():
        p.requires_grad_(True)

    optD.step()
    optG.step()
    losses.append(errD.item() + errG.item())

print(losses)
