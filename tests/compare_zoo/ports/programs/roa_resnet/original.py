# SPDX-License-Identifier: Apache-2.0
"""A small residual network in NCHW with BatchNorm2d, SGD with Nesterov momentum, evaluated every step."""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(1234)

CLASSES, STEPS = 5, 5


def conv3x3(cin, cout, stride=1):
    return nn.Conv2d(cin, cout, 3, stride=stride, padding=1, bias=False)


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = conv3x3(cin, cout, stride)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = conv3x3(cout, cout)
        self.bn2 = nn.BatchNorm2d(cout)
        self.downsample = None
        if stride != 1 or cin != cout:
            self.downsample = nn.Sequential(nn.Conv2d(cin, cout, 1, stride=stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)  # <- running_momentum norm_epsilon stats_detached
        out = F.relu(self.bn1(self.conv1(x)))  # <- running_momentum norm_epsilon stats_detached
        out = self.bn2(self.conv2(out))  # <- running_momentum norm_epsilon stats_detached
        return F.relu(out + identity)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = conv3x3(3, 8)
        self.bn1 = nn.BatchNorm2d(8)
        self.layer1 = BasicBlock(8, 8, 1)
        self.layer2 = BasicBlock(8, 16, 2)
        self.fc = nn.Linear(16, CLASSES)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))  # <- running_momentum norm_epsilon stats_detached
        x = self.layer2(self.layer1(x))
        return self.fc(x.mean(dim=(2, 3)))


def sample(gen, n):
    y = torch.randint(0, CLASSES, (n,), generator=gen)
    x = torch.randn(n, 3, 8, 8, generator=gen) * 1.5 + 0.5
    ramp = torch.linspace(-1, 1, 8)
    x[:, 0] += ramp * (y.float() - 2).view(-1, 1, 1)
    x[:, 1] += (ramp.view(-1, 1) * 0.7).expand(8, 8)
    return x, y


def augment(x, gen):
    flip = torch.rand(len(x), generator=gen) < 0.5
    return torch.where(flip.view(-1, 1, 1, 1), x.flip(3), x)  # <- flip_axis


def evaluate(model, x, y):
    model.eval()
    with torch.no_grad():
        value = F.cross_entropy(model(x), y).item()
    model.train()
    return value


model = ResNet()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)  # <- plain_momentum

gen = torch.Generator().manual_seed(77)
val_x, val_y = sample(gen, 12)
losses = []
for step in range(STEPS):
    x, y = sample(gen, 4)
    x = augment(x, gen)  # <- flip_axis
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- plain_momentum
    losses.append(loss.item() + evaluate(model, val_x, val_y))
print(losses)
