# SPDX-License-Identifier: Apache-2.0
"""A small U-Net for masks of organs, trained with Dice and binary cross entropy."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

SIZE, BATCH = 16, 3


class DoubleConv(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.GroupNorm(2, out_channels),
            nn.LeakyReLU(0.1, inplace=True),  # <- slope
            nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.GroupNorm(2, out_channels),
            nn.LeakyReLU(0.1, inplace=True),  # <- slope
        )

    def forward(self, x):
        return self.double_conv(x)  # <- slope


class Up(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)  # <- corners
        self.conv = DoubleConv(in_channels, out_channels)

    def forward(self, x1, x2):
        x1 = self.up(x1)  # <- corners
        x = torch.cat([x2, x1], dim=1)  # <- skip
        return self.conv(x)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inc = DoubleConv(1, 4)
        self.down1 = nn.Sequential(nn.MaxPool2d(2), DoubleConv(4, 8))
        self.down2 = nn.Sequential(nn.MaxPool2d(2), DoubleConv(8, 8))  # <- pooling
        self.up1 = Up(16, 4)
        self.up2 = Up(8, 4)
        self.outc = nn.Conv2d(4, 1, kernel_size=1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(x1)
        x3 = self.down2(x2)  # <- pooling
        x = self.up1(x3, x2)
        x = self.up2(x, x1)
        return self.outc(x)


class DiceLoss(nn.Module):
    def __init__(self, smooth=1.0):
        super().__init__()
        self.smooth = smooth

    def forward(self, logits, targets):
        probs = torch.sigmoid(logits).flatten(1)  # <- sigmoid
        targets = targets.flatten(1)
        intersection = (probs * targets).sum(dim=1)
        union = probs.sum(dim=1) + targets.sum(dim=1)
        dice = (2.0 * intersection + self.smooth) / (union + self.smooth)  # <- dice sigmoid
        return 1 - dice.mean()


torch.manual_seed(61)
model = UNet()
torch.save(model.state_dict(), sys.argv[1])
dice_loss = DiceLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
rng = np.random.default_rng(62)
losses = []
for _ in range(3):
    masks = np.zeros((BATCH, 1, SIZE, SIZE), np.float32)
    for mask in masks:
        top, left = rng.integers(0, SIZE - 6, 2)
        mask[0, top : top + 6, left : left + 5] = 1
    images = torch.from_numpy(masks + rng.normal(scale=0.5, size=masks.shape).astype(np.float32))
    masks = torch.from_numpy(masks)
    pred = model(images)
    loss = F.binary_cross_entropy_with_logits(pred, masks) + dice_loss(pred, masks)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
