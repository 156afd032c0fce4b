# SPDX-License-Identifier: Apache-2.0
"""A small DCGAN on 8x8 blobs, alternating discriminator and generator updates."""
import sys

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(5)

LATENT, BATCH, STEPS = 10, 12, 4


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(LATENT, 16 * 2 * 2)
        self.main = nn.Sequential(
            nn.BatchNorm2d(16),
            nn.ReLU(True),
            nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(True),
            nn.ConvTranspose2d(8, 1, 4, stride=2, padding=1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.main(self.project(z).view(-1, 16, 2, 2))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, 8, 4, stride=2, padding=1),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(8, 16, 4, stride=2, padding=1),
            nn.GroupNorm(4, 16),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Flatten(),
            nn.Linear(16 * 2 * 2, 1),
        )

    def forward(self, x):
        return self.main(x).squeeze(1)


def init(module):
    if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d, nn.Linear)):
        nn.init.normal_(module.weight, 0.0, 0.1)


def blobs(rng):
    yy, xx = np.mgrid[0:8, 0:8]
    centre = rng.uniform(2, 5, size=(BATCH, 2, 1, 1))
    r2 = (yy - centre[:, 0]) ** 2 + (xx - centre[:, 1]) ** 2
    return torch.tensor(2 * np.exp(-r2 / 3.0) - 1, dtype=torch.float32).unsqueeze(1)


netG, netD = Generator(), Discriminator()
netG.apply(init)
netD.apply(init)
state = {"G." + k: v.numpy() for k, v in netG.state_dict().items()}
state.update({"D." + k: v.numpy() for k, v in netD.state_dict().items()})
np.savez(sys.argv[1], **state)

criterion = nn.BCEWithLogitsLoss()
optG = torch.optim.Adam(netG.parameters(), lr=2e-3, betas=(0.5, 0.999))
optD = torch.optim.Adam(netD.parameters(), lr=1e-3, betas=(0.5, 0.999))
real_label = torch.full((BATCH,), 0.9)
fake_label = torch.zeros(BATCH)
rng = np.random.RandomState(17)
losses = []
for it in range(STEPS):
    real = blobs(rng)
    z = torch.from_numpy(rng.randn(BATCH, LATENT).astype("float32"))

    # (1) update D: real batch, then fake batch
    netD.zero_grad()
    errD_real = criterion(netD(real), real_label)
    errD_real.backward()
    fake = netG(z)
    errD_fake = criterion(netD(fake.detach()), fake_label)
    errD_fake.backward()
    optD.step()

    # (2) update G through the new D
    netG.zero_grad()
    errG = criterion(netD(fake), torch.ones(BATCH))
    errG.backward()
    optG.step()
    losses.append(errD_real.item() + errD_fake.item() + errG.item())
print(losses)
