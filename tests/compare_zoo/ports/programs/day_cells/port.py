# SPDX-License-Identifier: Apache-2.0
"""The classifier in plain torch, with modules and an optimizer from the library."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

N_CLASSES, PIXELS, BATCH_SIZE = 6, 14, 6


def conv_bn_relu(cin, cout, kernel, stride=1, padding=0, groups=1):
    return nn.Sequential(
        nn.Conv2d(cin, cout, kernel, stride, padding, groups=groups, bias=False),
        nn.BatchNorm2d(cout, eps=1e-5, momentum=0.1),
        nn.ReLU6(),
    )


class MobileNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = conv_bn_relu(3, 8, 3, stride=2)
        self.block1 = nn.Sequential(
            conv_bn_relu(8, 8, 3, padding=1, groups=8),
            conv_bn_relu(8, 12, 1),
        )
        self.block2 = nn.Sequential(
            conv_bn_relu(12, 12, 3, stride=2, padding=1, groups=12),
            conv_bn_relu(12, 16, 1),
        )
        self.norm = nn.LayerNorm(16 * 16, eps=1e-7)
        self.fc = nn.Linear(16 * 16, N_CLASSES)

    def forward(self, images):
        x = F.pad(images, (0, 1, 0, 1))  # <- same
        x = self.stem(x)  # <- same eps
        x = self.block1(x)
        x = self.block2(x)  # <- relu6
        x = torch.flatten(x, 1)  # <- flattened relu6
        return self.fc(self.norm(x))  # <- flattened relu6


def load_cells(model, cells):
    def conv_norm(target, conv, bn):
        target[0].weight.copy_(cells[f"{conv}.weight"])
        target[1].weight.copy_(cells[f"{bn}.gamma"])
        target[1].bias.copy_(cells[f"{bn}.beta"])

    conv_norm(model.stem, "conv", "bn")
    for i, block in enumerate([model.block1, model.block2]):
        conv_norm(block[0], f"blocks.{i}.depthwise", f"blocks.{i}.bn1")
        conv_norm(block[1], f"blocks.{i}.pointwise", f"blocks.{i}.bn2")
    for target, name in [(model.norm, "norm"), (model.fc, "dense")]:
        target.weight.copy_(cells[f"{name}.weight"])
        target.bias.copy_(cells[f"{name}.bias"])


model = MobileNet()
with torch.no_grad():
    load_cells(model, torch.load(sys.argv[1]))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-3)
rng = np.random.default_rng(102)
losses = []
for _ in range(4):
    pixels = rng.uniform(0, 255, (BATCH_SIZE, 3, PIXELS, PIXELS)).astype(np.float32)
    labels = torch.tensor(rng.integers(0, N_CLASSES, BATCH_SIZE))
    images = (torch.tensor(pixels) / 255 - 0.5) / 0.25  # <- scaled
    logits = model(images)
    loss = F.cross_entropy(logits, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- dampening
    losses.append(loss.item())
