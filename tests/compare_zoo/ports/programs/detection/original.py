# SPDX-License-Identifier: Apache-2.0
"""A dense detector with a focal loss and smooth L1 on box offsets (RetinaNet, Lin et al., 2017)."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

CLASSES, ANCHORS = 4, 2


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 3, 2, 1)
        self.tower = nn.Sequential(nn.Conv2d(12, 12, 3, 1, 1), nn.GroupNorm(4, 12), nn.ReLU())
        self.scores = nn.Conv2d(12, ANCHORS * CLASSES, 3, 1, 1)
        self.boxes = nn.Conv2d(12, ANCHORS * 4, 3, 1, 1)

    def forward(self, x):
        x = self.tower(F.relu(self.stem(x)))  # <- groups
        n = len(x)
        scores = self.scores(x).view(n, ANCHORS, CLASSES, -1).permute(0, 3, 1, 2)  # <- layout
        boxes = self.boxes(x).view(n, ANCHORS, 4, -1).permute(0, 3, 1, 2)  # <- layout
        return scores.reshape(n, -1, CLASSES), boxes.reshape(n, -1, 4)  # <- layout


def focal(logits, targets):
    p = logits.sigmoid()
    entropy = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    right = p * targets + (1 - p) * (1 - targets)  # <- gamma
    weight = 0.25 * targets + 0.75 * (1 - targets)  # <- alpha
    return weight * (1 - right) ** 2 * entropy  # <- gamma alpha


torch.manual_seed(9)
model = Head()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
rng = np.random.default_rng(12)
losses = []
for _ in range(2):
    images = torch.from_numpy(rng.standard_normal((2, 3, 8, 8), dtype=np.float32))
    labels = torch.from_numpy(rng.integers(-8, CLASSES, (2, 32))).clamp(min=-1)
    wanted = torch.from_numpy(2 * rng.standard_normal((2, 32, 4), dtype=np.float32))
    scores, boxes = model(images)
    positive = labels >= 0
    count = positive.sum().clamp(min=1)  # <- normaliser
    classes = F.one_hot(labels.clamp(min=0), CLASSES) * positive[..., None]
    first = focal(scores, classes.float()).sum() / count  # <- normaliser alpha gamma
    second = (
        F.smooth_l1_loss(boxes[positive], wanted[positive], reduction="sum", beta=0.5) / count
    )  # <- beta normaliser
    loss = first + second  # <- normaliser beta
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
