# SPDX-License-Identifier: Apache-2.0
"""DeepLab's atrous spatial pyramid pooling as Chen et al. (2017) have it: parallel dilated
convolutions and a pooled image, scores upsampled bilinearly, an ignored label, the poly rate.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

BATCH, SIDE, WIDTH, CLASSES, IGNORE, MAX_ITER = 4, 24, 12, 5, 255, 6


class ConvBNReLU(nn.Sequential):
    def __init__(self, inside, outside, kernel, stride=1, dilation=1):
        padding = dilation * (kernel // 2)
        super().__init__(
            nn.Conv2d(inside, outside, kernel, stride, padding, dilation, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(inplace=True),
        )


class ASPPPooling(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.conv = ConvBNReLU(inside, outside, 1)

    def forward(self, x):
        size = x.shape[-2:]
        pooled = self.conv(self.pool(x))  # <- pooling
        return F.interpolate(pooled, size=size, mode="bilinear", align_corners=False)


class ASPP(nn.Module):
    def __init__(self, inside, outside, rates):
        super().__init__()
        branches = [ConvBNReLU(inside, outside, 1)]
        branches += [ConvBNReLU(inside, outside, 3, dilation=rate) for rate in rates]
        branches += [ASPPPooling(inside, outside)]
        self.convs = nn.ModuleList(branches)
        self.project = ConvBNReLU(len(branches) * outside, outside, 1)

    def forward(self, x):
        features = [conv(x) for conv in self.convs]  # <- dilation
        return self.project(torch.cat(features, dim=1))  # <- concat


class DeepLab(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            ConvBNReLU(3, WIDTH, 3, stride=2), ConvBNReLU(WIDTH, 2 * WIDTH, 3, stride=2)
        )
        self.aspp = ASPP(2 * WIDTH, WIDTH, (1, 2, 3))
        self.refine = ConvBNReLU(WIDTH, WIDTH, 3)
        self.classifier = nn.Conv2d(WIDTH, CLASSES, 1)

    def forward(self, x):
        size = x.shape[-2:]
        x = self.refine(self.aspp(self.backbone(x)))  # <- deviation
        x = self.classifier(x)
        return F.interpolate(x, size=size, mode="bilinear", align_corners=False)  # <- corners


class PolyLR(torch.optim.lr_scheduler.LRScheduler):
    def get_lr(self):
        factor = (1 - self.last_epoch / MAX_ITER) ** 0.9  # <- poly
        return [base * factor for base in self.base_lrs]  # <- poly


MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


def transform(pixels):
    scaled = (pixels / 255.0 - MEAN) / STD  # <- deviation
    return torch.from_numpy(scaled.astype(np.float32)).permute(0, 3, 1, 2)  # <- deviation


rng = np.random.default_rng(71)
pixels = rng.integers(0, 256, (3, BATCH, SIDE, SIDE, 3))
masks = rng.integers(0, CLASSES, (3, BATCH, SIDE // 4, SIDE // 4)).repeat(4, 2).repeat(4, 3)
masks[rng.random(masks.shape) < 0.2] = IGNORE
torch.manual_seed(37)
model = DeepLab()
torch.save(model.state_dict(), sys.argv[1])
criterion = nn.CrossEntropyLoss(ignore_index=IGNORE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-3)
scheduler = PolyLR(optimizer)
losses = []
for step in range(3):
    optimizer.zero_grad()
    outputs = model(transform(pixels[step]))
    loss = criterion(outputs, torch.from_numpy(masks[step]))  # <- ignored
    loss.backward()
    optimizer.step()  # <- decay poly
    scheduler.step()  # <- poly
    losses.append(loss.item())
