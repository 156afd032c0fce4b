# SPDX-License-Identifier: Apache-2.0
"""A small ResNet on 16x16 images: fine-tuned with its batch norms frozen (gamma and beta learn), SGD with momentum."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 5


class BasicBlock(nn.Module):
    def __init__(self, inplanes, planes, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride, 1, bias=False)  # <- padding
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = None
        if stride != 1:
            self.downsample = nn.Sequential(
                nn.Conv2d(inplanes, planes, 1, stride, bias=False), nn.BatchNorm2d(planes)
            )

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = F.relu(self.bn1(self.conv1(x)))  # <- padding frozen
        out = self.bn2(self.conv2(out))  # <- frozen
        return F.relu(out + identity)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)  # <- statistics
        self.maxpool = nn.MaxPool2d(3, 2, 1)  # <- maxpool
        self.layer1 = BasicBlock(8, 8, 1)
        self.layer2 = BasicBlock(8, 16, 2)  # <- padding
        self.layer3 = BasicBlock(16, 24, 2)  # <- padding
        self.fc = nn.Linear(24, CLASSES)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))  # <- frozen statistics
        x = self.maxpool(x)  # <- maxpool
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean(dim=(2, 3)))


torch.manual_seed(3)
model = ResNet()
with torch.no_grad():  # as of a network trained before
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.weight.add_(0.2 * torch.randn(m.num_features))
            m.bias.add_(0.2 * torch.randn(m.num_features))
            m.running_mean.add_(0.3 * torch.randn(m.num_features))
            m.running_var.mul_(torch.rand(m.num_features) + 0.3)
np.savez(sys.argv[1], **{k: v.numpy() for k, v in model.state_dict().items() if v.ndim})

model.train()
for m in model.modules():
    if isinstance(m, nn.BatchNorm2d):
        m.eval()  # <- frozen
optimizer = torch.optim.SGD(
    model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-2
)  # <- decay
random = np.random.RandomState(9)
losses = []
for _ in range(4):
    images = random.randn(8, 3, 16, 16).astype(np.float32)
    labels = random.randint(0, CLASSES, 8)
    images += labels[:, None, None, None] * 0.2
    loss = F.cross_entropy(model(torch.tensor(images)), torch.tensor(labels))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- decay
    losses.append(loss.item())
print(losses)
