# SPDX-License-Identifier: Apache-2.0
"""A small ResNet with batch norm, SGD with momentum and coupled decay; a validation loss after each step."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 5


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)  # <- same_padding
        self.bn1 = nn.BatchNorm2d(outputs)  # <- bn_momentum
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)  # <- bn_momentum
        self.down = None
        if stride != 1:
            self.down = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))  # <- same_padding bn_momentum
        y = self.bn2(self.conv2(y))  # <- bn_momentum
        return F.relu(y + (x if self.down is None else self.down(x)))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(8)  # <- bn_momentum
        self.block0 = BasicBlock(8, 8, 1)
        self.block1 = BasicBlock(8, 16, 2)
        self.fc1 = nn.Linear(16 * 2 * 2, 24)  # <- flatten
        self.fc2 = nn.Linear(24, CLASSES)

    def forward(self, x):
        x = F.relu(self.bn(self.stem(x)))  # <- bn_momentum
        x = self.block1(self.block0(x))
        x = F.avg_pool2d(x, 3, 2, 1)  # <- pool_border
        return self.fc2(F.relu(self.fc1(x.flatten(1))))  # <- flatten


torch.manual_seed(41)
model = ResNet()
np.savez(sys.argv[1], **{name: p.detach().numpy() for name, p in model.named_parameters()})

optimizer = torch.optim.SGD(
    model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.05, nesterov=True
)  # <- nesterov
random = np.random.RandomState(42)
held = torch.from_numpy(random.randn(6, 3, 8, 8).astype(np.float32))
held_labels = torch.from_numpy(random.randint(0, CLASSES, (6,)))
losses = []
for _ in range(4):
    images = torch.from_numpy((1.5 * random.randn(6, 3, 8, 8) + 0.5).astype(np.float32))
    labels = torch.from_numpy(random.randint(0, CLASSES, (6,)))
    model.train()
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- nesterov
    model.eval()
    with torch.no_grad():
        valid = F.cross_entropy(model(held), held_labels)
    losses.append(loss.item() + valid.item())
print(losses)
