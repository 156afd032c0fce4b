# SPDX-License-Identifier: Apache-2.0
"""An anchor-free detector (FCOS): two levels, shared towers with group norm, targets image by image
and level by level, focal, IoU and centerness losses, SGD with warmup.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

CLASSES, WIDTH, BATCH, BOXES, SIZE = 4, 12, 3, 3, 32
STRIDES, RANGES = (4, 8), ((0, 9), (9, 1000))


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([1.0]))

    def forward(self, x):
        return x * self.scale


def tower():
    conv = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False)
    return nn.Sequential(conv, nn.GroupNorm(3, WIDTH), nn.ReLU())  # <- grouped


class FCOS(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 4, stride=4)
        self.down = nn.Conv2d(WIDTH, WIDTH, 3, stride=2, padding=1)
        self.lateral = nn.Conv2d(WIDTH, WIDTH, 1)
        self.cls_tower, self.bbox_tower = tower(), tower()
        self.cls_logits = nn.Conv2d(WIDTH, CLASSES, 3, padding=1)
        self.bbox_pred = nn.Conv2d(WIDTH, 4, 3, padding=1)
        self.ctrness = nn.Conv2d(WIDTH, 1, 3, padding=1)
        self.scales = nn.ModuleList([Scale() for _ in STRIDES])
        nn.init.constant_(self.cls_logits.bias, -2.0)

    def forward(self, images):
        low = F.relu(self.stem(images))
        high = self.down(low)
        low = self.lateral(low) + F.interpolate(high, scale_factor=2, mode="nearest")
        outputs = []
        for level, feature in enumerate((low, high)):
            c, b = self.cls_tower(feature), self.bbox_tower(feature)  # <- grouped
            reg = torch.exp(self.scales[level](self.bbox_pred(b))) * STRIDES[level]
            outputs.append((self.cls_logits(c), reg, self.ctrness(b)))
        return outputs


def targets(boxes, labels, level):
    """Labels (CLASSES for background) and distances of one image's locations on one level."""
    side, stride = SIZE // STRIDES[level], STRIDES[level]
    shifts = torch.arange(side) * stride + stride // 2  # <- centres
    y, x = torch.meshgrid(shifts, shifts, indexing="ij")  # <- centres
    x, y = x.reshape(-1, 1), y.reshape(-1, 1)
    sides = (x - boxes[:, 0], y - boxes[:, 1], boxes[:, 2] - x, boxes[:, 3] - y)  # <- centres
    distances = torch.stack(sides, dim=2)  # <- centres
    inside = distances.min(dim=2).values > 0
    largest = distances.max(dim=2).values
    cared = (largest >= RANGES[level][0]) & (largest < RANGES[level][1])
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])  # <- smallest
    areas = areas.expand(len(x), -1).masked_fill(~(inside & cared), 1e8)  # <- smallest
    least, which = areas.min(dim=1)  # <- smallest
    found = labels[which].masked_fill(least == 1e8, CLASSES)  # <- smallest
    return found, distances[torch.arange(len(x)), which]  # <- smallest


def focal(logits, labels):
    goal = F.one_hot(labels, CLASSES + 1)[:, :CLASSES].float()
    p = torch.sigmoid(logits)
    ce = F.binary_cross_entropy_with_logits(logits, goal, reduction="none")
    p_t = p * goal + (1 - p) * (1 - goal)
    alpha_t = 0.25 * goal + 0.75 * (1 - goal)  # <- alpha
    return (alpha_t * (1 - p_t) ** 2 * ce).sum()  # <- alpha


def criterion(outputs, boxes, labels):
    cls, reg, ctr, goal, distances = [], [], [], [], []
    for level, (c, r, n) in enumerate(outputs):
        for b in range(BATCH):
            cls.append(c[b].flatten(1).t())
            reg.append(r[b].flatten(1).t())
            ctr.append(n[b].flatten())
            found, away = targets(boxes[b], labels[b], level)
            goal.append(found)
            distances.append(away)
    cls, reg, ctr, goal = torch.cat(cls), torch.cat(reg), torch.cat(ctr), torch.cat(goal)
    some = torch.nonzero(goal < CLASSES).squeeze(1)
    p, t = reg[some], torch.cat(distances)[some]
    inner = torch.min(p, t)
    both = (inner[:, 0] + inner[:, 2]) * (inner[:, 1] + inner[:, 3])
    union = (p[:, 0] + p[:, 2]) * (p[:, 1] + p[:, 3]) + (t[:, 0] + t[:, 2]) * (t[:, 1] + t[:, 3])
    iou_loss = -torch.log((both + 1) / (union - both + 1))
    lr, tb = t[:, [0, 2]], t[:, [1, 3]]
    center = (lr.amin(1) / lr.amax(1) * tb.amin(1) / tb.amax(1)).sqrt()
    ctr_loss = F.binary_cross_entropy_with_logits(ctr[some], center)
    return focal(cls, goal) / len(some) + (iou_loss * center).sum() / center.sum() + ctr_loss


torch.manual_seed(71)
model = FCOS()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)  # <- velocity
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 4))
generator = torch.Generator().manual_seed(72)
losses = []
for _ in range(4):
    images = torch.randn(BATCH, 3, SIZE, SIZE, generator=generator)
    corner = torch.randint(0, 16, (BATCH, BOXES, 2), generator=generator)
    extent = torch.randint(7, 17, (BATCH, BOXES, 2), generator=generator)
    labels = torch.randint(0, CLASSES, (BATCH, BOXES), generator=generator)
    loss = criterion(model(images), torch.cat([corner, corner + extent], dim=2).float(), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- velocity
    scheduler.step()
    losses.append(loss.item())
