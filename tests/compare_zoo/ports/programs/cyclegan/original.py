# SPDX-License-Identifier: Apache-2.0
"""CycleGAN as Zhu et al. (2017) have it, small: two generators of residual blocks with instance norm,
two patch discriminators, cycle and identity losses, two optimizers.
"""

import itertools
import sys

import numpy as np
import torch
from torch import nn

BATCH, CHANNELS, SIZE, FILTERS, LAMBDA = 2, 3, 16, 8, 10.0


class ResnetBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.pad = nn.ReflectionPad2d(1)
        self.conv1 = nn.Conv2d(dim, dim, 3)
        self.conv2 = nn.Conv2d(dim, dim, 3)
        self.norm = nn.InstanceNorm2d(dim)

    def forward(self, x):
        y = self.conv1(self.pad(x))  # <- reflect
        y = torch.relu(self.norm(y))  # <- instance eps
        y = self.conv2(self.pad(y))  # <- reflect
        return x + self.norm(y)  # <- instance eps


class ResnetGenerator(nn.Module):
    def __init__(self):
        super().__init__()
        self.pad = nn.ReflectionPad2d(1)
        self.first = nn.Conv2d(CHANNELS, FILTERS, 3)
        self.norm1 = nn.InstanceNorm2d(FILTERS)
        self.down = nn.Conv2d(FILTERS, 2 * FILTERS, 3, stride=2, padding=1)
        self.norm2 = nn.InstanceNorm2d(2 * FILTERS)
        self.block = ResnetBlock(2 * FILTERS)
        self.up = nn.ConvTranspose2d(2 * FILTERS, FILTERS, 3, stride=2, padding=1, output_padding=1)
        self.norm3 = nn.InstanceNorm2d(FILTERS)
        self.last = nn.Conv2d(FILTERS, CHANNELS, 3)

    def forward(self, x):
        x = self.first(self.pad(x))  # <- reflect
        x = torch.relu(self.norm1(x))  # <- instance eps
        x = torch.relu(self.norm2(self.down(x)))  # <- instance eps
        x = self.block(x)
        x = self.up(x)  # <- upward
        x = torch.relu(self.norm3(x))  # <- instance eps
        return torch.tanh(self.last(self.pad(x)))  # <- reflect


class NLayerDiscriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(CHANNELS, FILTERS, 4, stride=2, padding=1)
        self.conv2 = nn.Conv2d(FILTERS, 2 * FILTERS, 4, stride=2, padding=1)
        self.norm = nn.InstanceNorm2d(2 * FILTERS)
        self.conv3 = nn.Conv2d(2 * FILTERS, 1, 4, stride=1, padding=1)
        self.act = nn.LeakyReLU(0.2)

    def forward(self, x):
        x = self.act(self.conv1(x))  # <- slope
        x = self.norm(self.conv2(x))  # <- instance eps
        return self.conv3(self.act(x))  # <- slope


class CycleGAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.netG_A, self.netG_B = ResnetGenerator(), ResnetGenerator()
        self.netD_A, self.netD_B = NLayerDiscriminator(), NLayerDiscriminator()


def init_weights(module):
    if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(module.weight, 0.0, 0.1)
        nn.init.zeros_(module.bias)


torch.manual_seed(71)
model = CycleGAN()
model.apply(init_weights)
torch.save(model.state_dict(), sys.argv[1])
mse, l1 = nn.MSELoss(), nn.L1Loss()
optimizer_G = torch.optim.Adam(
    itertools.chain(model.netG_A.parameters(), model.netG_B.parameters()),
    lr=2e-3,
    betas=(0.5, 0.999),
)
optimizer_D = torch.optim.Adam(
    itertools.chain(model.netD_A.parameters(), model.netD_B.parameters()),
    lr=2e-3,
    betas=(0.5, 0.999),
)


def gan_loss(prediction, real):
    return mse(prediction, torch.full_like(prediction, float(real)))


def discriminator_loss(net, real, fake):
    return (gan_loss(net(real), True) + gan_loss(net(fake.detach()), False)) * 0.5  # <- half


rng = np.random.default_rng(72)
losses = []
for _ in range(3):
    images = rng.uniform(-1, 1, (2, BATCH, CHANNELS, SIZE, SIZE)).astype(np.float32)
    real_A, real_B = torch.from_numpy(images)
    fake_B, fake_A = model.netG_A(real_A), model.netG_B(real_B)
    rec_A, rec_B = model.netG_B(fake_B), model.netG_A(fake_A)

    idt_A, idt_B = model.netG_A(real_B), model.netG_B(real_A)  # <- identity
    loss_idt = (l1(idt_A, real_B) + l1(idt_B, real_A)) * LAMBDA * 0.5  # <- identity
    loss_cycle = (l1(rec_A, real_A) + l1(rec_B, real_B)) * LAMBDA
    loss_gan = gan_loss(model.netD_A(fake_B), True) + gan_loss(model.netD_B(fake_A), True)
    loss_G = loss_gan + loss_cycle + loss_idt
    optimizer_G.zero_grad()
    loss_G.backward()
    optimizer_G.step()  # <- betas

    loss_D_A = discriminator_loss(model.netD_A, real_B, fake_B)
    loss_D_B = discriminator_loss(model.netD_B, real_A, fake_A)
    optimizer_D.zero_grad()
    loss_D_A.backward()
    loss_D_B.backward()
    optimizer_D.step()  # <- betas
    losses += [loss_G.item(), loss_D_A.item(), loss_D_B.item()]
