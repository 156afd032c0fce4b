# SPDX-License-Identifier: Apache-2.0
"""Small residual network with BatchNorm, max pooling, momentum and a step schedule."""

import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, x):
        h = self.bn1(self.conv1(x)).relu_()
        return (x + self.bn2(self.conv2(h))).relu()


torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1),
    Residual(8),
    nn.MaxPool2d(3, stride=2, padding=1),
    Residual(8),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(8, 4),
)
optimizer = torch.optim.SGD(
    model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, nesterov=True
)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
for step in range(5):
    model.train()
    images, labels = torch.randn(8, 3, 12, 12), torch.randint(4, (8,))
    loss = nn.functional.cross_entropy(model(images), labels, label_smoothing=0.1)
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
    schedule.step()
    model.eval()
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).sum().item()
    print(step, loss.item().hex(), right)
