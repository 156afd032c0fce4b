# SPDX-License-Identifier: Apache-2.0
"""A small pre-activation ResNet on 12 x 12 images; SGD with Nesterov momentum and weight decay."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

CLASSES, BATCH, SIZE = 4, 8, 12


class Block(nn.Module):
    def __init__(self, inner, outer, stride):
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inner)
        self.conv1 = nn.Conv2d(inner, outer, 3, stride=stride, padding=1, bias=False)  # <- same
        self.norm2 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, padding=1, bias=False)
        self.short = nn.AvgPool2d(3, stride, padding=1)  # <- counted
        self.fit = nn.Conv2d(inner, outer, 1, bias=False)

    def forward(self, x):
        h = F.relu(self.norm1(x))
        h = self.conv1(h)  # <- same
        h = self.conv2(F.relu(self.norm2(h)))
        side = self.short(x)  # <- counted
        return h + self.fit(side)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.block1 = Block(6, 8, 2)
        self.block2 = Block(8, 10, 2)
        self.fc = nn.Linear(10 * 3 * 3, CLASSES)

    def forward(self, x):
        x = self.stem(x)
        x = self.block2(self.block1(x))
        x = F.relu(x).flatten(1)  # <- flatten
        return self.fc(x)  # <- flatten


torch.manual_seed(19)
model = ResNet()
np.savez(sys.argv[1], **{k: v.detach().numpy() for k, v in model.named_parameters()})

decayed = [p for p in model.parameters() if p.ndim > 1]  # <- decay_all
others = [p for p in model.parameters() if p.ndim <= 1]  # <- decay_all
groups = [
    {"params": decayed, "weight_decay": 0.05},
    {"params": others, "weight_decay": 0.0},
]  # <- decay_all
optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True)  # <- nesterov decay_all
rng = np.random.RandomState(51)
losses = []
model.train()
for _ in range(3):
    labels = rng.randint(0, CLASSES, BATCH)
    images = rng.randn(BATCH, 3, SIZE, SIZE) + 0.5 * labels[:, None, None, None]
    logits = model(torch.from_numpy(images.astype("float32")))
    loss = F.cross_entropy(logits, torch.from_numpy(labels))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- nesterov decay_all
    losses.append(loss.item())
print(losses)
