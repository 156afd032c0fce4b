# SPDX-License-Identifier: Apache-2.0
"""One denoising step of a small U-Net with GroupNorm, SiLU, upsampling and an average of the
weights.
"""

import copy

import torch
from torch import nn
from torch.nn import functional as F


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.SiLU())
        self.middle = nn.Sequential(
            nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.GroupNorm(4, 8), nn.SiLU()
        )
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.out = nn.Conv2d(16, 1, 1)

    def forward(self, x):
        skip = self.down(x)
        return self.out(torch.cat([skip, self.up(self.middle(skip))], 1))


torch.manual_seed(0)
model = UNet()
average = copy.deepcopy(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(4):
    image, noise = torch.rand(2, 1, 8, 8), torch.randn(2, 1, 8, 8)
    level = torch.rand(2, 1, 1, 1)
    noisy = level.sqrt() * noise + (1 - level).sqrt() * image
    loss = F.smooth_l1_loss(model(noisy), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for a, p in zip(average.parameters(), model.parameters()):
            a.lerp_(p, 0.1)
    print(step, loss.item().hex())
