# SPDX-License-Identifier: Apache-2.0
"""The detector of EfficientDet (Tan et al., 2020) on three levels of features: a bidirectional
pyramid with fast normalized fusion, heads shared by the levels, a norm a level, a focal loss.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

WIDTH, CLASSES, ANCHORS, BATCH, SIZE = 8, 4, 2, 2, 32


class SeparableConv(nn.Module):
    def __init__(self, inside, outside, norm=True):
        super().__init__()
        self.depthwise = nn.Conv2d(inside, inside, 3, padding=1, groups=inside, bias=False)
        self.pointwise = nn.Conv2d(inside, outside, 1, bias=not norm)
        self.bn = (
            nn.BatchNorm2d(outside, momentum=0.01, eps=1e-3) if norm else None
        )  # <- epsilon running

    def forward(self, x):
        x = self.pointwise(self.depthwise(x))  # <- fused
        return x if self.bn is None else self.bn(x)  # <- epsilon running


class BiFPN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv4_up, self.conv3_up = SeparableConv(WIDTH, WIDTH), SeparableConv(WIDTH, WIDTH)
        self.conv4_down, self.conv5_down = SeparableConv(WIDTH, WIDTH), SeparableConv(WIDTH, WIDTH)
        self.p4_w1 = nn.Parameter(torch.tensor([1.0, 0.4]))
        self.p3_w1 = nn.Parameter(torch.tensor([0.8, -0.3]))
        self.p4_w2 = nn.Parameter(torch.tensor([1.0, 0.6, 0.9]))
        self.p5_w2 = nn.Parameter(torch.tensor([1.0, 0.7]))

    def fuse(self, weight, *features):
        weight = F.relu(weight)  # <- positive
        weight = weight / (weight.sum() + 1e-4)  # <- share
        return F.silu(sum(w * x for w, x in zip(weight, features)))  # <- fused

    def forward(self, p3_in, p4_in, p5_in):
        up = nn.Upsample(scale_factor=2, mode="nearest")
        down = nn.MaxPool2d(3, stride=2, padding=1)
        p4_up = self.conv4_up(self.fuse(self.p4_w1, p4_in, up(p5_in)))
        p3_out = self.conv3_up(self.fuse(self.p3_w1, p3_in, up(p4_up)))
        p3_down = down(p3_out)  # <- pooled
        p4_out = self.conv4_down(self.fuse(self.p4_w2, p4_in, p4_up, p3_down))  # <- source
        p5_out = self.conv5_down(self.fuse(self.p5_w2, p5_in, down(p4_out)))
        return p3_out, p4_out, p5_out


class Head(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.conv = SeparableConv(WIDTH, WIDTH, norm=False)
        self.bns = nn.ModuleList(
            nn.BatchNorm2d(WIDTH, momentum=0.01, eps=1e-3) for _ in range(3)
        )  # <- epsilon running
        self.header = SeparableConv(WIDTH, ANCHORS * outputs, norm=False)
        self.outputs = outputs

    def forward(self, features):
        found = []
        for feature, bn in zip(features, self.bns):
            x = self.header(F.silu(bn(self.conv(feature))))  # <- running epsilon
            found.append(x.permute(0, 2, 3, 1).reshape(len(x), -1, self.outputs))  # <- anchors
        return torch.cat(found, dim=1)


class EfficientDet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 3, stride=4, padding=1)
        self.stages = nn.ModuleList(nn.Conv2d(WIDTH, WIDTH, 3, 2, 1) for _ in range(2))
        self.bifpn = nn.ModuleList(BiFPN() for _ in range(2))
        self.classifier, self.regressor = Head(CLASSES), Head(4)
        nn.init.constant_(self.classifier.header.pointwise.bias, -np.log((1 - 0.1) / 0.1))

    def forward(self, images):
        features = [F.silu(self.stem(images))]
        for stage in self.stages:
            features.append(F.silu(stage(features[-1])))
        for cell in self.bifpn:
            features = cell(*features)
        return self.classifier(features), self.regressor(features)


def focal_loss(logits, targets, alpha=0.25, gamma=1.5):
    p = torch.sigmoid(logits)
    ce = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    p_t = p * targets + (1 - p) * (1 - targets)
    alpha_t = alpha * targets + (1 - alpha) * (1 - targets)  # <- alpha
    return alpha_t * (1 - p_t) ** gamma * ce  # <- alpha


def huber(pred, target, delta=0.1):
    return F.huber_loss(pred, target, reduction="none", delta=delta)  # <- huber


def criterion(outputs, labels, boxes):
    logits, regression = outputs
    positive = labels >= 0
    normalizer = positive.sum() + 1.0
    targets = F.one_hot(labels.clamp(min=0), CLASSES) * positive.unsqueeze(-1)
    cls_loss = focal_loss(logits, targets.float()).sum() / normalizer
    box_loss = huber(regression, boxes) * positive.unsqueeze(-1)
    return cls_loss + 50.0 * box_loss.sum() / (normalizer * 4.0)


torch.manual_seed(163)
model = EfficientDet()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=4e-5)
rng = np.random.default_rng(167)
losses = []
total = ANCHORS * (8 * 8 + 4 * 4 + 2 * 2)
for _ in range(3):
    images = torch.from_numpy(rng.normal(size=(BATCH, 3, SIZE, SIZE)).astype(np.float32))
    labels = torch.from_numpy(rng.integers(0, CLASSES, (BATCH, total)))
    labels = torch.where(torch.from_numpy(rng.random((BATCH, total)) < 0.1), labels, -1)
    boxes = torch.from_numpy(rng.normal(0, 0.3, (BATCH, total, 4)).astype(np.float32))
    loss = criterion(model(images), labels, boxes)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
model.eval()
with torch.no_grad():
    losses.append(criterion(model(images), labels, boxes).item())
