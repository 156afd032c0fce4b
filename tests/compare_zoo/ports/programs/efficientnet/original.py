# SPDX-License-Identifier: Apache-2.0
"""A small EfficientNet as Tan and Le (2019) have it: a stem, three MBConv blocks with squeeze and
excitation, a head; swish everywhere, batch norm with a large epsilon, RMSprop with momentum.
"""

import sys

import numpy as np
import torch
from torch import nn

CLASSES, BATCH, SIDE = 5, 6, 16
BN_EPS, BN_MOMENTUM = 1e-3, 0.01
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BLOCKS = (  # inputs, outputs, kernel, stride, expansion
    (8, 8, 3, 1, 1),
    (8, 12, 3, 2, 4),
    (12, 12, 5, 1, 4),
)


class Swish(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)  # <- squeeze


class ConvBNAct(nn.Module):
    def __init__(self, inputs, outputs, kernel=1, stride=1, groups=1, *, act=True):
        super().__init__()
        self.conv = nn.Conv2d(
            inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False
        )
        self.bn = nn.BatchNorm2d(outputs, eps=BN_EPS, momentum=BN_MOMENTUM)
        self.act = Swish() if act else nn.Identity()

    def forward(self, x):
        x = self.conv(x)  # <- kernel padding
        x = self.bn(x)  # <- eps
        return self.act(x)


class SqueezeExcite(nn.Module):
    def __init__(self, channels, squeezed):
        super().__init__()
        self.reduce = nn.Conv2d(channels, squeezed, 1)
        self.expand = nn.Conv2d(squeezed, channels, 1)
        self.swish = Swish()

    def forward(self, x):
        s = x.mean((2, 3), keepdim=True)
        s = self.swish(self.reduce(s))  # <- squeeze
        return torch.sigmoid(self.expand(s)) * x


class MBConv(nn.Module):
    def __init__(self, inputs, outputs, kernel, stride, expansion):
        super().__init__()
        wide = inputs * expansion
        self.residual = stride == 1 and inputs == outputs
        self.expand = ConvBNAct(inputs, wide) if expansion != 1 else nn.Identity()
        self.depthwise = ConvBNAct(wide, wide, kernel, stride, groups=wide)
        self.se = SqueezeExcite(wide, max(1, inputs // 4))
        self.project = ConvBNAct(wide, outputs, act=False)

    def forward(self, x):
        y = self.depthwise(self.expand(x))
        y = self.project(self.se(y))
        return x + y if self.residual else y  # <- residual


class EfficientNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = ConvBNAct(3, 8, 3, 2)
        self.blocks = nn.Sequential(*(MBConv(*block) for block in BLOCKS))
        self.head = ConvBNAct(12, 24)
        self.fc = nn.Linear(24, CLASSES)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def forward(self, x):
        x = self.head(self.blocks(self.stem(x)))
        return self.fc(x.mean((2, 3)))


def make_data():
    rng = np.random.default_rng(4)
    pixels = torch.from_numpy(rng.integers(0, 256, (3, BATCH, 3, SIDE, SIDE)))
    labels = torch.from_numpy(rng.integers(0, CLASSES, (3, BATCH)))
    mean, std = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)
    return (pixels / 255 - mean) / std, labels  # <- pixels


images, labels = make_data()
torch.manual_seed(4)
model = EfficientNet()
torch.save(model.state_dict(), sys.argv[1])
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
optimizer = torch.optim.RMSprop(
    model.parameters(), lr=0.004, alpha=0.9, eps=1e-3, momentum=0.9, weight_decay=1e-5
)
losses = []
for x, y in zip(images, labels):
    optimizer.zero_grad()
    loss = criterion(model(x), y)  # <- smoothing
    loss.backward()
    optimizer.step()  # <- root
    losses.append(loss.item())
