# SPDX-License-Identifier: Apache-2.0
"""SegNet (Badrinarayanan et al. 2017): an encoder that keeps where its maxima were, a decoder that
puts them back there, cross entropy balanced by the median frequency of the classes.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

CLASSES, BATCH, SIZE = 5, 3, 16


class ConvBNReLU(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.conv = nn.Conv2d(inside, outside, 3, padding=1)
        self.bn = nn.BatchNorm2d(outside)

    def forward(self, x):
        x = self.conv(x)  # <- flip scaled
        x = self.bn(x)  # <- eps axes
        return F.relu(x)


class SegNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc1, self.enc2, self.enc3 = ConvBNReLU(3, 8), ConvBNReLU(8, 12), ConvBNReLU(12, 16)
        self.dec3, self.dec2 = ConvBNReLU(16, 12), ConvBNReLU(12, 8)
        self.classifier = nn.Conv2d(8, CLASSES, 3, padding=1)
        self.pool = nn.MaxPool2d(2, stride=2, return_indices=True)
        self.unpool = nn.MaxUnpool2d(2, stride=2)

    def forward(self, x):
        x, where1 = self.pool(self.enc1(x))
        x, where2 = self.pool(self.enc2(x))
        x, where3 = self.pool(self.enc3(x))
        x = self.unpool(x, where3)  # <- corner
        x = self.dec3(x)
        x = self.unpool(x, where2)  # <- corner
        x = self.dec2(x)
        x = self.unpool(x, where1)  # <- corner
        return self.classifier(x)  # <- flip


def median_frequency_weights(masks):
    counts = np.stack([(masks == c).sum(axis=(1, 2)) for c in range(CLASSES)])
    pixels = (counts > 0).sum(axis=1) * SIZE * SIZE  # <- present
    frequency = counts.sum(axis=1) / pixels  # <- present
    return np.median(frequency) / frequency  # <- present


def street(rng):
    images = rng.integers(0, 256, (3 * BATCH, 3, SIZE, SIZE)).astype(np.float32)
    masks = np.zeros((3 * BATCH, SIZE, SIZE), dtype=np.int64)
    for mask in masks:
        for c in range(1, CLASSES):
            top, left = rng.integers(0, SIZE - 4, 2)
            height, width = rng.integers(2, 10, 2)
            if rng.random() < 0.6:
                mask[top : top + height, left : left + width] = c
    return images / 255.0 - 0.5, masks  # <- scaled


images, masks = street(np.random.default_rng(21))
weight = torch.from_numpy(median_frequency_weights(masks)).float()  # <- present
images, masks = torch.from_numpy(images), torch.from_numpy(masks)  # <- scaled
torch.manual_seed(2)
model = SegNet()
torch.save(model.state_dict(), sys.argv[1])
criterion = nn.CrossEntropyLoss(weight=weight)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
losses = []
for step in range(3):
    part = slice(step * BATCH, (step + 1) * BATCH)
    x, y = images[part], masks[part]  # <- scaled
    optimizer.zero_grad()
    loss = criterion(model(x), y)  # <- present weighted
    loss.backward()
    optimizer.step()  # <- momentum
    losses.append(loss.item())
