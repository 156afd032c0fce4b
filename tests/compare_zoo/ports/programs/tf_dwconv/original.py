# SPDX-License-Identifier: Apache-2.0
"""Inference of a depthwise-separable conv net with squeeze-and-excite and trained running stats."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

CLASSES, BATCH, SIZE, STEM, MULTIPLIER = 5, 4, 16, 6, 2
MIDDLE = STEM * MULTIPLIER


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, STEM, 3, stride=2, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(STEM)  # <- batch_stats
        self.depth = nn.Conv2d(
            STEM, MIDDLE, 3, stride=2, padding=1, groups=STEM, bias=False
        )  # <- same
        self.norm2 = nn.BatchNorm2d(MIDDLE)  # <- stats batch_stats
        self.squeeze = nn.Linear(MIDDLE, 4)
        self.excite = nn.Linear(4, MIDDLE)
        self.point = nn.Conv2d(MIDDLE, 10, 1)
        self.head = nn.Linear(10, CLASSES)

    def forward(self, x):
        x = self.stem(x)
        x = F.hardswish(self.norm1(x))  # <- batch_stats
        x = self.depth(x)  # <- same multiplier
        x = self.norm2(x)  # <- stats batch_stats
        x = F.relu6(x)
        s = self.excite(F.relu(self.squeeze(x.mean((2, 3)))))
        gate = F.hardsigmoid(s)  # <- slope
        x = x * gate[:, :, None, None]
        x = F.relu6(self.point(x))
        return self.head(x.mean((2, 3)))


torch.manual_seed(37)
model = Net()
with torch.no_grad():
    for norm in (model.norm1, model.norm2):
        norm.running_mean.normal_(std=0.1)
        norm.running_var.uniform_(0.05, 0.3)
        norm.weight.uniform_(0.7, 1.4)
        norm.bias.normal_(std=0.3)
    model.excite.weight.mul_(4.0)
    model.head.weight.mul_(4.0)
arrays = {k: v.numpy() for k, v in model.state_dict().items() if "tracked" not in k}
np.savez(sys.argv[1], **arrays)

model.eval()  # <- batch_stats
rng = np.random.RandomState(77)
losses = []
with torch.no_grad():
    for _ in range(3):
        images = rng.randn(BATCH, 3, SIZE, SIZE).astype("float32")
        labels = torch.from_numpy(rng.randint(0, CLASSES, BATCH))
        logits = model(torch.from_numpy(images))
        losses.append(F.cross_entropy(logits, labels).item())
print(losses)
