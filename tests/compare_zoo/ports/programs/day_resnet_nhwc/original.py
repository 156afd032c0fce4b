# SPDX-License-Identifier: Apache-2.0
"""A small ResNet trained with SGD and validated after each step."""

import sys

import numpy as np
import torch
from torch import nn

NUM_CLASSES = 5


class BasicBlock(nn.Module):
    def __init__(self, inplanes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = None
        if stride != 1 or inplanes != planes:
            self.downsample = nn.Sequential(
                nn.Conv2d(inplanes, planes, 1, stride=stride, bias=False),
                nn.BatchNorm2d(planes),
            )

    def forward(self, x):
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)  # <- activation


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, stride=1, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)  # <- padding
        self.layer1 = nn.Sequential(BasicBlock(8, 8), BasicBlock(8, 8))
        self.layer2 = nn.Sequential(BasicBlock(8, 16, 2), BasicBlock(16, 16))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(16, NUM_CLASSES)

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))  # <- unbiased momentum eval_mode
        x = self.maxpool(x)  # <- padding
        x = self.layer2(self.layer1(x))
        x = torch.flatten(self.avgpool(x), 1)
        return self.fc(x)


torch.manual_seed(11)
model = ResNet()
torch.save(model.state_dict(), sys.argv[1])
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
rng = np.random.default_rng(12)
val_x = torch.from_numpy(rng.normal(size=(6, 3, 16, 16)).astype(np.float32))
val_y = torch.from_numpy(rng.integers(0, NUM_CLASSES, 6))
losses = []
for _ in range(3):
    images = torch.from_numpy(rng.normal(size=(8, 3, 16, 16)).astype(np.float32))
    target = torch.from_numpy(rng.integers(0, NUM_CLASSES, 8))
    model.train()
    loss = criterion(model(images), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- decay
    losses.append(loss.item())
    model.eval()  # <- eval_mode
    with torch.no_grad():
        logits = model(val_x)  # <- eval_mode
        losses.append(criterion(logits, val_y).item())
        print("accuracy", (logits.argmax(1) == val_y).float().mean().item())
