# SPDX-License-Identifier: Apache-2.0
"""A small YOLO in the torch manner: channels first, Conv-BN-SiLU, CSP block, SPPF, two scales with
anchors, box (IoU), objectness and class losses; Nesterov momentum; then a look in eval mode.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

CLASSES, SIZE = 3, 48
ANCHORS = torch.tensor([[[5.0, 8.0], [9.0, 6.0]], [[14.0, 10.0], [12.0, 20.0]]])
STRIDES = (8, 16)


class Conv(nn.Module):
    def __init__(self, c1, c2, k=1, s=1):
        super().__init__()
        self.conv = nn.Conv2d(c1, c2, k, s, k // 2, bias=False)  # <- kernel_layout
        self.bn = nn.BatchNorm2d(c2, eps=1e-3, momentum=0.03)  # <- bn_momentum

    def forward(self, x):
        return F.silu(self.bn(self.conv(x)))  # <- bn_momentum kernel_layout


class C3(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.cv1, self.cv2, self.cv3 = Conv(c, c // 2), Conv(c, c // 2), Conv(c, c)
        self.m1, self.m2 = Conv(c // 2, c // 2), Conv(c // 2, c // 2, 3)

    def forward(self, x):
        y = self.cv1(x)
        y = y + self.m2(self.m1(y))
        return self.cv3(torch.cat((y, self.cv2(x)), 1))


class SPPF(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.cv1, self.cv2 = Conv(c, c // 2), Conv(2 * c, c)
        self.pool = nn.MaxPool2d(3, 1, 1)  # <- pool_pad

    def forward(self, x):
        y = [self.cv1(x)]
        for _ in range(3):
            y.append(self.pool(y[-1]))  # <- pool_pad
        return self.cv2(torch.cat(y, 1))  # <- pool_pad


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.down1, self.down2 = Conv(3, 8, 3, 2), Conv(8, 12, 3, 2), Conv(12, 16, 3, 2)
        self.c3, self.down3 = C3(16), Conv(16, 24, 3, 2)
        self.sppf, self.lateral, self.fuse = SPPF(24), Conv(24, 16), Conv(32, 16, 3)
        self.heads = nn.ModuleList([nn.Conv2d(c, 2 * (5 + CLASSES), 1) for c in (16, 24)])

    def forward(self, x):
        p3 = self.c3(self.down2(self.down1(self.stem(x))))
        p4 = self.sppf(self.down3(p3))
        up = F.interpolate(self.lateral(p4), scale_factor=2, mode="nearest")
        p3 = self.fuse(torch.cat((up, p3), 1))
        outs = []
        for head, p in zip(self.heads, (p3, p4)):
            outs.append(head(p).unflatten(1, (2, 5 + CLASSES)).permute(0, 1, 3, 4, 2))
        return outs


def iou(a, b):
    low = torch.maximum(a[..., :2] - a[..., 2:] / 2, b[..., :2] - b[..., 2:] / 2)
    high = torch.minimum(a[..., :2] + a[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2)
    inter = (high - low).clamp(min=0).prod(-1)
    return inter / (a[..., 2:].prod(-1) + b[..., 2:].prod(-1) - inter + 1e-7)


def criterion(outs, boxes, labels):
    b, total = torch.arange(len(boxes)), 0.0
    for out, anchors, stride in zip(outs, ANCHORS, STRIDES):
        column, row = (boxes[:, :2] / stride).long().unbind(1)  # <- grid_xy
        best = (boxes[:, None, 2:] / anchors).log().abs().sum(-1).argmin(1)
        cell = out[b, best, row, column]  # <- grid_xy
        xy = cell[:, :2].sigmoid() * 2 - 0.5 + torch.stack((column, row), 1)  # <- grid_xy
        wh = (cell[:, 2:4].sigmoid() * 2) ** 2 * anchors[best]
        overlap = iou(torch.cat((xy * stride, wh), 1), boxes)  # <- grid_xy
        goal = torch.zeros(out.shape[:-1])
        goal[b, best, row, column] = overlap.detach().clamp(min=0)  # <- soft_goal
        objectness = F.binary_cross_entropy_with_logits(out[..., 4], goal)  # <- soft_goal
        kinds = F.binary_cross_entropy_with_logits(cell[:, 5:], torch.eye(CLASSES)[labels])
        total = total + 0.05 * (1 - overlap).mean() + objectness + 0.5 * kinds
    return total


torch.manual_seed(41)
model = Detector()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
generator = torch.Generator().manual_seed(42)
losses = []
for step in range(5):
    model.train(step < 4)
    images = torch.rand((3, 3, SIZE, SIZE), generator=generator)
    boxes = torch.rand((3, 4), generator=generator) * torch.tensor([24.0, 24.0, 16.0, 16.0]) + 4
    labels = torch.randint(CLASSES, (3,), generator=generator)
    optimizer.zero_grad()
    loss = criterion(model(images), boxes, labels)
    losses.append(loss.item())
    if step < 4:
        loss.backward()
        optimizer.step()
