# SPDX-License-Identifier: Apache-2.0
"""A convolutional VAE with given noise, group norms and transposed convolutions; SGD with a cosine schedule."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

LATENT, BATCH, SIDE = 6, 5, 12


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 4, 2, 1)
        self.gn1 = nn.GroupNorm(4, 8, eps=1e-3)  # <- norm_eps
        self.conv2 = nn.Conv2d(8, 16, 4, 2, 1)
        self.gn2 = nn.GroupNorm(4, 16, eps=1e-3)  # <- norm_eps
        self.stats = nn.Linear(16, 2 * LATENT)
        self.grow = nn.Linear(LATENT, 16)
        self.deconv1 = nn.ConvTranspose2d(16, 8, 4, 2, 1)  # <- flipped
        self.deconv2 = nn.ConvTranspose2d(8, 1, 4, 2, 1)  # <- flipped

    def forward(self, x, noise):
        x = F.silu(self.gn1(self.conv1(x)))  # <- norm_eps
        x = F.silu(self.gn2(self.conv2(x)))  # <- norm_eps
        mean, logvar = self.stats(x.permute(0, 2, 3, 1)).chunk(2, dim=-1)
        z = mean + noise * torch.exp(0.5 * logvar)  # <- deviation
        y = F.silu(self.grow(z)).permute(0, 3, 1, 2)
        y = F.silu(self.deconv1(y))  # <- flipped
        return self.deconv2(y), mean, logvar  # <- flipped


torch.manual_seed(81)
model = VAE()
with torch.no_grad():
    model.stats.weight.mul_(3.0)
    model.deconv1.weight.mul_(3.0)
    model.deconv2.weight.mul_(3.0)
    model.conv1.weight.mul_(0.2)
np.savez(sys.argv[1], **{name: p.detach().numpy() for name, p in model.named_parameters()})

optimizer = torch.optim.SGD(model.parameters(), lr=0.002, momentum=0.9)  # <- cosine
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)  # <- cosine
random = np.random.RandomState(82)
losses = []
for _ in range(4):
    waves = np.sin(random.rand(BATCH, 1, 1, 1) * np.arange(SIDE)[:, None] + np.arange(SIDE) * 0.5)
    images = torch.from_numpy((0.3 * waves).astype(np.float32))
    noise = torch.from_numpy(random.randn(BATCH, SIDE // 4, SIDE // 4, LATENT).astype(np.float32))
    output, mean, logvar = model(images, noise)
    rebuilt = (output - images).pow(2).sum((1, 2, 3)).mean()
    kl = -0.5 * (1 + logvar - mean.pow(2) - logvar.exp()).sum((1, 2, 3)).mean()  # <- kl_sum
    loss = rebuilt + 0.2 * kl
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- cosine
    scheduler.step()  # <- cosine
    losses.append(loss.item())
print(losses)
