# SPDX-License-Identifier: Apache-2.0
"""A small RetinaNet: feature pyramid, shared heads, focal loss and smooth L1 over all anchors."""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

CLASSES, ANCHORS = 4, 2


class FPN(nn.Module):
    def __init__(self, out=12):
        super().__init__()
        self.c3 = nn.Conv2d(3, 8, 3, 2, 1)
        self.c4 = nn.Conv2d(8, 16, 3, 2, 1)
        self.c5 = nn.Conv2d(16, 16, 3, 2, 1)
        self.lateral = nn.ModuleList([nn.Conv2d(c, out, 1) for c in (8, 16, 16)])
        self.smooth = nn.ModuleList([nn.Conv2d(out, out, 3, padding=1) for _ in range(3)])

    def forward(self, x):
        c3 = F.relu(self.c3(x))
        c4 = F.relu(self.c4(c3))
        c5 = F.relu(self.c5(c4))
        p5 = self.lateral[2](c5)
        p4 = self.lateral[1](c4) + F.interpolate(p5, scale_factor=2, mode="nearest")  # <- upsample
        p3 = self.lateral[0](c3) + F.interpolate(p4, scale_factor=2, mode="nearest")  # <- upsample
        return [conv(p) for conv, p in zip(self.smooth, (p3, p4, p5))]


class Head(nn.Module):
    def __init__(self, width, per_anchor, prior=None):
        super().__init__()
        self.per_anchor = per_anchor
        self.tower = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(3, width), nn.ReLU()
        )
        self.pred = nn.Conv2d(width, ANCHORS * per_anchor, 3, padding=1)
        if prior:
            nn.init.constant_(self.pred.bias, -math.log((1 - prior) / prior))

    def forward(self, features):
        outs = []
        for f in features:
            y = self.pred(self.tower(f))  # <- anchors
            n, _, h, w = y.shape
            y = y.view(n, ANCHORS, self.per_anchor, h, w).permute(0, 3, 4, 1, 2)  # <- anchors
            outs.append(y.reshape(n, -1, self.per_anchor))  # <- anchors
        return torch.cat(outs, dim=1)


def sigmoid_focal_loss(inputs, targets, alpha=0.25, gamma=2.0):
    p = torch.sigmoid(inputs)  # <- focus
    ce_loss = F.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
    p_t = p * targets + (1 - p) * (1 - targets)  # <- focus
    loss = ce_loss * ((1 - p_t) ** gamma)  # <- focus
    alpha_t = alpha * targets + (1 - alpha) * (1 - targets)
    return (alpha_t * loss).sum()


torch.manual_seed(0)
model = nn.ModuleDict({"fpn": FPN(), "cls": Head(12, CLASSES, prior=0.05), "box": Head(12, 4)})
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)  # <- momentum
gen = torch.Generator().manual_seed(17)
losses = []
for step in range(4):
    images = torch.randn(2, 3, 24, 24, generator=gen)
    labels = torch.randint(-40, CLASSES, (2, 378), generator=gen)  # negative: background
    offsets = torch.randn(2, 378, 4, generator=gen)
    features = model["fpn"](images)
    logits, deltas = model["cls"](features), model["box"](features)
    foreground = labels >= 0
    onehot = F.one_hot(labels.clamp(min=0), CLASSES) * foreground[..., None]
    num = foreground.sum().clamp(min=1)
    loss_cls = sigmoid_focal_loss(logits, onehot.float()) / num
    loss_box = (
        F.smooth_l1_loss(  # <- huber
            deltas[foreground], offsets[foreground], beta=1 / 9, reduction="sum"
        )
        / num
    )  # <- huber
    loss = loss_cls + loss_box
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- momentum
    losses.append(loss.item())
print(losses)
