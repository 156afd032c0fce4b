# SPDX-License-Identifier: Apache-2.0
"""SE-ResNeXt with grouped convolutions as torch.nn modules; trained, then scored in eval mode."""

import sys

import torch
import torch.nn as nn


class SEModule(nn.Module):
    def __init__(self, channels, reduction=4):
        super().__init__()
        self.avg_pool = nn.AdaptiveAvgPool2d(1)  # <- squeeze
        self.fc1 = nn.Conv2d(channels, channels // reduction, kernel_size=1)
        self.relu = nn.ReLU()
        self.fc2 = nn.Conv2d(channels // reduction, channels, kernel_size=1)
        self.sigmoid = nn.Sigmoid()

    def forward(self, x):
        module_input = x
        x = self.avg_pool(x)  # <- squeeze
        x = self.fc2(self.relu(self.fc1(x)))
        return module_input * self.sigmoid(x)


class SEResNeXtBottleneck(nn.Module):
    expansion = 2

    def __init__(self, inplanes, planes, groups=4, stride=1):
        super().__init__()
        out = planes * self.expansion
        self.conv1 = nn.Conv2d(inplanes, planes, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes, momentum=0.1)  # <- running
        self.conv2 = nn.Conv2d(  # <- cardinality
            planes, planes, 3, stride=stride, padding=1, groups=groups, bias=False
        )
        self.bn2 = nn.BatchNorm2d(planes, momentum=0.1)  # <- running
        self.conv3 = nn.Conv2d(planes, out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out, momentum=0.1)  # <- running
        self.relu = nn.ReLU(inplace=True)
        self.se_module = SEModule(out)
        self.downsample = None
        if stride != 1 or inplanes != out:
            self.downsample = nn.Sequential(
                nn.AvgPool2d(stride, stride),
                nn.Conv2d(inplanes, out, 1, bias=False),
                nn.BatchNorm2d(out, momentum=0.1),
            )  # <- running

    def forward(self, x):
        residual = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))  # <- cardinality
        out = self.bn3(self.conv3(out))
        return self.relu(self.se_module(out) + residual)


class SENet(nn.Module):
    def __init__(self, num_classes=5):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)  # <- pooling
        self.layer1 = SEResNeXtBottleneck(16, 8)
        self.layer2 = SEResNeXtBottleneck(16, 16, stride=2)
        self.last_linear = nn.Linear(32, num_classes)

    def forward(self, x):
        x = self.pool(self.stem(x))  # <- pooling
        x = self.layer2(self.layer1(x))
        return self.last_linear(x.mean(dim=(2, 3)))


torch.manual_seed(0)
model = SENet()
torch.save(model.state_dict(), sys.argv[1])
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-5)  # <- moments
generator = torch.Generator().manual_seed(41)
losses = []
for step in range(4):
    x = torch.randn(6, 3, 16, 16, generator=generator)
    y = torch.randint(0, 5, (6,), generator=generator)
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- moments
    losses.append(loss.item())
model.eval()
with torch.no_grad():
    x = torch.randn(6, 3, 16, 16, generator=generator)
    losses.append(criterion(model(x), torch.arange(6) % 5).item())  # <- running
print(losses)
