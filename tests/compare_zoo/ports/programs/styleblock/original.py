# SPDX-License-Identifier: Apache-2.0
"""StyleGAN2 (Karras et al. 2020) in small: modulated convolutions with demodulation, noise, leaky
ReLU with a gain, skips to RGB, the non-saturating loss and the R1 penalty.
"""

import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

Z, W, CHANNELS, BATCH, GAMMA = 12, 12, 10, 6, 2.0


def fused_leaky_relu(x, bias):
    bias = bias.view(1, -1, *[1] * (x.dim() - 2))
    return F.leaky_relu(x + bias, 0.2) * math.sqrt(2)  # <- gain


class EqualLinear(nn.Module):
    def __init__(self, inside, outside, bias_init=0.0, lr_mul=1.0, activate=False):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outside, inside) / lr_mul)
        self.bias = nn.Parameter(torch.full((outside,), float(bias_init)))
        self.scale, self.lr_mul = lr_mul / math.sqrt(inside), lr_mul
        self.activate = activate

    def forward(self, x):
        if self.activate:
            out = F.linear(x, self.weight * self.scale)
            return fused_leaky_relu(out, self.bias * self.lr_mul)  # <- lrmul
        return F.linear(x, self.weight * self.scale, self.bias * self.lr_mul)


class EqualConv2d(nn.Module):
    def __init__(self, inside, outside, kernel):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outside, inside, kernel, kernel))
        self.scale, self.padding = 1 / math.sqrt(inside * kernel**2), kernel // 2

    def forward(self, x):
        return F.conv2d(x, self.weight * self.scale, padding=self.padding)


class ModulatedConv2d(nn.Module):
    def __init__(self, inside, outside, kernel, demodulate=True):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, outside, inside, kernel, kernel))
        self.modulation = EqualLinear(W, inside, bias_init=1)
        self.scale, self.kernel = 1 / math.sqrt(inside * kernel**2), kernel
        self.demodulate = demodulate

    def forward(self, x, style):
        batch, inside, height, width = x.shape
        style = self.modulation(style).view(batch, 1, inside, 1, 1)
        weight = self.scale * self.weight * style
        if self.demodulate:
            demod = torch.rsqrt(weight.pow(2).sum([2, 3, 4], keepdim=True) + 1e-8)  # <- demod
            weight = weight * demod  # <- demod
        weight = weight.flatten(0, 1)
        x = x.reshape(1, batch * inside, height, width)
        out = F.conv2d(x, weight, padding=self.kernel // 2, groups=batch)
        return out.view(batch, -1, height, width)


class StyledConv(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.conv = ModulatedConv2d(inside, outside, 3)
        self.noise_strength = nn.Parameter(torch.full((1,), 0.2))
        self.bias = nn.Parameter(torch.zeros(outside))

    def forward(self, x, style, noise):
        out = self.conv(x, style)
        out = out + self.noise_strength * noise  # <- noise
        return fused_leaky_relu(out, self.bias)  # <- noise


class ToRGB(nn.Module):
    def __init__(self, inside):
        super().__init__()
        self.conv = ModulatedConv2d(inside, 3, 1, demodulate=False)
        self.bias = nn.Parameter(torch.zeros(1, 3, 1, 1))

    def forward(self, x, style):
        return self.conv(x, style) + self.bias


def upsample(x):
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.mapping1 = EqualLinear(Z, W, lr_mul=0.1, activate=True)
        self.mapping2 = EqualLinear(W, W, lr_mul=0.1, activate=True)
        self.constant = nn.Parameter(torch.randn(1, CHANNELS, 4, 4))
        self.conv4, self.rgb4 = StyledConv(CHANNELS, CHANNELS), ToRGB(CHANNELS)
        self.conv8, self.rgb8 = StyledConv(CHANNELS, CHANNELS), ToRGB(CHANNELS)

    def forward(self, z, noise4, noise8):
        z = z * torch.rsqrt(z.pow(2).mean(dim=1, keepdim=True) + 1e-8)  # <- pixelnorm
        w = self.mapping2(self.mapping1(z))
        x = self.constant.expand(len(z), -1, -1, -1)
        x = self.conv4(x, w, noise4)
        rgb = self.rgb4(x, w)
        x = self.conv8(upsample(x), w, noise8)
        return self.rgb8(x, w) + upsample(rgb)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.from_rgb, self.bias1 = EqualConv2d(3, CHANNELS, 1), nn.Parameter(torch.zeros(CHANNELS))
        self.conv, self.bias2 = (
            EqualConv2d(CHANNELS, CHANNELS, 3),
            nn.Parameter(torch.zeros(CHANNELS)),
        )
        self.fc = EqualLinear(CHANNELS * 16, CHANNELS, activate=True)
        self.out = EqualLinear(CHANNELS, 1)

    def forward(self, x):
        x = fused_leaky_relu(self.from_rgb(x), self.bias1)
        x = fused_leaky_relu(self.conv(x), self.bias2)
        x = F.avg_pool2d(x, 2)
        return self.out(self.fc(x.flatten(1)))


def d_logistic_loss(real_pred, fake_pred):
    return F.softplus(-real_pred).mean() + F.softplus(fake_pred).mean()


def d_r1_loss(real_pred, real):
    (grad,) = torch.autograd.grad(real_pred.sum(), real, create_graph=True)
    return grad.pow(2).flatten(1).sum(1).mean()  # <- penalty


def g_nonsaturating_loss(fake_pred):
    return F.softplus(-fake_pred).mean()  # <- saturating


torch.manual_seed(20)
generator, discriminator = Generator(), Discriminator()
torch.save({"g": generator.state_dict(), "d": discriminator.state_dict()}, sys.argv[1])
g_optim = torch.optim.Adam(generator.parameters(), lr=0.002, betas=(0.0, 0.99))
d_optim = torch.optim.Adam(discriminator.parameters(), lr=0.002, betas=(0.0, 0.99))
rng = np.random.default_rng(19)


def draw(*shape):
    return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))


losses = []
for _ in range(3):
    real = draw(BATCH, 3, 8, 8).tanh().requires_grad_()
    z, noise4, noise8 = draw(BATCH, Z), draw(BATCH, 1, 4, 4), draw(BATCH, 1, 8, 8)

    fake = generator(z, noise4, noise8)
    real_pred = discriminator(real)
    fake_pred = discriminator(fake.detach())
    d_loss = d_logistic_loss(real_pred, fake_pred)
    d_loss = d_loss + GAMMA / 2 * d_r1_loss(real_pred, real)  # <- penalty
    d_optim.zero_grad()
    d_loss.backward()
    d_optim.step()  # <- betas

    g_loss = g_nonsaturating_loss(discriminator(fake))
    g_optim.zero_grad()
    g_loss.backward()
    g_optim.step()  # <- betas
    loss = d_loss.detach() + g_loss.detach()
    losses.append(loss.item())
