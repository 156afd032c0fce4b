# SPDX-License-Identifier: Apache-2.0
"""A UNet as Ronneberger et al. (2015) drew it, with batch norms: two levels down by pooling, up by
transposed convolutions, what was seen on the way put beside; cross entropy and Dice.
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

CLASSES = 3


class DoubleConv(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outside)

    def forward(self, x):
        x = self.norm1(self.conv1(x))  # <- norm_eps momentum
        x = F.relu(x, inplace=True)  # <- slope
        x = self.norm2(self.conv2(x))  # <- momentum
        return F.relu(x, inplace=True)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inc, self.down, self.bottom = DoubleConv(1, 4), DoubleConv(4, 8), DoubleConv(8, 16)
        self.up1, self.conv1 = nn.ConvTranspose2d(16, 8, 2, stride=2), DoubleConv(16, 8)
        self.up2, self.conv2 = nn.ConvTranspose2d(8, 4, 2, stride=2), DoubleConv(8, 4)
        self.out = nn.Conv2d(4, CLASSES, 1)

    def forward(self, x):
        first = self.inc(x)
        second = self.down(F.max_pool2d(first, 2))  # <- pool
        x = self.bottom(F.max_pool2d(second, 2))
        x = self.conv1(torch.cat([second, self.up1(x)], dim=1))  # <- joined flipped
        x = self.conv2(torch.cat([first, self.up2(x)], dim=1))
        return self.out(x)


def dice_loss(logits, target):
    probs = F.softmax(logits, dim=1)
    onehot = F.one_hot(target, CLASSES).permute(0, 3, 1, 2).float()
    inter = 2 * (probs * onehot).sum(dim=(0, 2, 3))
    union = probs.sum(dim=(0, 2, 3)) + onehot.sum(dim=(0, 2, 3))
    return 1 - ((inter + 1e-6) / (union + 1e-6)).mean()  # <- dice


torch.manual_seed(2)
model = UNet()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.9)
rng = np.random.default_rng(3)
losses = []
for _ in range(2):
    image = torch.from_numpy(rng.standard_normal((2, 1, 16, 16), dtype=np.float32))
    mask = torch.from_numpy(rng.integers(0, CLASSES, (2, 16, 16)))
    logits = model(image)
    loss = F.cross_entropy(logits, mask) + dice_loss(logits, mask)  # <- dice
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
model.eval()
with torch.no_grad():
    losses.append(F.cross_entropy(model(image), mask).item())
