# SPDX-License-Identifier: Apache-2.0
"""A short ResNet with bottleneck blocks, SGD with momentum and a warm-up."""
import sys

import torch
import torch.nn as nn
from torch.optim.lr_scheduler import LinearLR


def conv3x3(cin, cout, stride=1):
    return nn.Conv2d(cin, cout, kernel_size=3, stride=stride, padding=1, bias=False)


def conv1x1(cin, cout, stride=1):
    return nn.Conv2d(cin, cout, kernel_size=1, stride=stride, bias=False)


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, inplanes, planes, stride=1):
        super().__init__()
        out = planes * self.expansion
        self.conv1, self.bn1 = conv1x1(inplanes, planes), nn.BatchNorm2d(planes)  # <- bn_var
        self.conv2 = conv3x3(planes, planes, stride)  # <- where_stride
        self.bn2 = nn.BatchNorm2d(planes)  # <- bn_var
        self.conv3, self.bn3 = conv1x1(planes, out), nn.BatchNorm2d(out)  # <- bn_var
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inplanes != out:
            self.downsample = nn.Sequential(conv1x1(inplanes, out, stride), nn.BatchNorm2d(out))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))  # <- where_stride bn_var
        out = self.relu(self.bn2(self.conv2(out)))  # <- where_stride bn_var
        out = self.bn3(self.conv3(out))  # <- bn_var
        return self.relu(out + identity)


class ResNet(nn.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self.conv1, self.bn1 = conv3x3(3, 8), nn.BatchNorm2d(8)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)  # <- pool_edge
        self.layer1 = nn.Sequential(Bottleneck(8, 4), Bottleneck(16, 4))
        self.layer2 = nn.Sequential(Bottleneck(16, 8, stride=2), Bottleneck(32, 8))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(32, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))  # <- pool_edge
        x = self.layer2(self.layer1(x))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def split_params(model):
    decay, no_decay = [], []
    for p in model.parameters():
        (no_decay if p.ndim == 1 else decay).append(p)  # <- decay_set
    return [{"params": decay, "weight_decay": 0.05},  # <- decay_set
            {"params": no_decay, "weight_decay": 0.0}]  # <- decay_set


def loader(steps):
    gen = torch.Generator().manual_seed(1)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    for _ in range(steps):
        image = torch.rand(8, 3, 16, 16, generator=gen)
        target = torch.randint(0, 10, (8,), generator=gen)
        yield (image - mean[:, None, None]) / std[:, None, None], target


torch.manual_seed(0)
model = ResNet()
torch.save(model.state_dict(), sys.argv[1])
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
optimizer = torch.optim.SGD(split_params(model), lr=0.1, momentum=0.9)  # <- decay_set
scheduler = LinearLR(optimizer, start_factor=0.25, total_iters=3)  # <- warm_start
losses = []
model.train()
for images, target in loader(4):
    loss = criterion(model(images), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- decay_set warm_start
    scheduler.step()  # <- warm_start
    losses.append(loss.item())
print(losses)
