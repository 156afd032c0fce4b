# SPDX-License-Identifier: Apache-2.0
"""A small U-Net for volumes: double convolutions with group norm, a skip connection, soft Dice with
cross-entropy, SGD with Nesterov's momentum and the polynomial schedule.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

CLASSES, BASE, GROUPS, BATCH, SIZE, STEPS = 3, 8, 4, 2, 8, 20


class ConvBlock(nn.Sequential):
    def __init__(self, inside, outside):
        super().__init__(
            nn.Conv3d(inside, outside, 3, padding=1),
            nn.GroupNorm(GROUPS, outside),
            nn.LeakyReLU(0.01),
            nn.Conv3d(outside, outside, 3, padding=1),
            nn.GroupNorm(GROUPS, outside),
            nn.LeakyReLU(0.01),
        )


class UNet3D(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = ConvBlock(1, BASE)
        self.bottleneck = ConvBlock(BASE, 2 * BASE)
        self.up = nn.ConvTranspose3d(2 * BASE, BASE, 2, stride=2)
        self.decoder = ConvBlock(2 * BASE, BASE)
        self.head = nn.Conv3d(BASE, CLASSES, 1)

    def forward(self, volume):
        skip = self.encoder(volume)  # <- epsilon groups
        deep = self.bottleneck(F.max_pool3d(skip, 2))  # <- epsilon groups pool
        up = self.up(deep)  # <- axes
        return self.head(self.decoder(torch.cat([up, skip], dim=1)))  # <- epsilon groups skip


class DiceLoss(nn.Module):
    def __init__(self, smooth=1e-5):
        super().__init__()
        self.smooth = smooth

    def forward(self, logits, target):
        probs = torch.softmax(logits, dim=1)[:, 1:]  # <- background
        onehot = F.one_hot(target, CLASSES).permute(0, 4, 1, 2, 3).float()[:, 1:]  # <- background
        intersection = (probs * onehot).sum(dim=(2, 3, 4))  # <- samples
        denominator = probs.sum(dim=(2, 3, 4)) + onehot.sum(dim=(2, 3, 4))  # <- samples
        dice = (2 * intersection + self.smooth) / (denominator + self.smooth)
        return 1 - dice.mean()


torch.manual_seed(41)
model = UNet3D()
torch.save(model.state_dict(), sys.argv[1])
rng = np.random.default_rng(42)
dice_loss, cross_entropy = DiceLoss(), nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(
    model.parameters(), lr=0.02, momentum=0.99, nesterov=True, weight_decay=3e-5
)
schedule = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=STEPS, power=0.9)
losses = []
for _ in range(3):
    volume = rng.standard_normal((BATCH, 1, SIZE, SIZE, SIZE), dtype=np.float32)
    target = torch.from_numpy((volume[:, 0] > -0.6).astype(np.int64) + (volume[:, 0] > 0.8))
    optimizer.zero_grad()
    logits = model(torch.from_numpy(volume))
    loss = dice_loss(logits, target) + cross_entropy(logits, target)
    loss.backward()
    optimizer.step()  # <- nesterov
    schedule.step()
    losses.append(loss.item())
