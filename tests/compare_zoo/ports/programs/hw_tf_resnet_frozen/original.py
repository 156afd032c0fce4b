# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning a tiny ResNet: frozen stem in eval mode, slow backbone, fast head."""
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(2)

CLASSES, BATCH = 5, 12


class BasicBlock(nn.Module):
    def __init__(self, inplanes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = None
        if stride != 1 or inplanes != planes:
            self.downsample = nn.Sequential(
                nn.Conv2d(inplanes, planes, 1, stride=stride, bias=False), nn.BatchNorm2d(planes))

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        identity = x if self.downsample is None else self.downsample(x)
        return F.relu(out + identity)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=1, padding=1),
        )
        self.layer1 = BasicBlock(8, 8)
        self.layer2 = BasicBlock(8, 16, stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(16, CLASSES)

    def forward(self, x):
        x = self.layer2(self.layer1(self.stem(x)))
        return self.fc(self.avgpool(x).flatten(1))

    def train(self, mode=True):
        super().train(mode)
        self.stem.eval()  # its statistics stay those of the pretraining
        return self


rng = np.random.RandomState(64)


def load_batch():
    labels = rng.randint(0, CLASSES, size=BATCH)
    images = rng.randn(BATCH, 3, 16, 16) + 0.6 * np.cos(labels.reshape(-1, 1, 1, 1) + np.arange(3).reshape(1, 3, 1, 1))
    return torch.from_numpy(images.astype(np.float32)), torch.from_numpy(labels)


model = ResNet()
with torch.no_grad():  # stands for pretraining: settled statistics
    model.stem[1].running_mean.normal_(0, 0.1)
    model.stem[1].running_var.uniform_(0.2, 0.6)
    model.stem[1].weight.uniform_(0.7, 1.3)
np.savez(sys.argv[1], **{k: v.numpy() for k, v in model.state_dict().items()})
model.stem.requires_grad_(False)
model.train()
body = [p for n, p in model.named_parameters() if p.requires_grad and not n.startswith("fc.")]
optimizer = torch.optim.SGD([
    {"params": [p for p in body if p.ndim == 4], "weight_decay": 1e-2},
    {"params": [p for p in body if p.ndim == 1]},
    {"params": model.fc.parameters(), "lr": 0.1},
], lr=0.02, momentum=0.9)

losses = []
for step in range(4):
    images, labels = load_batch()
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(losses)
