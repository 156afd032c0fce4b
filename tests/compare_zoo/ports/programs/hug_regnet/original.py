# SPDX-License-Identifier: Apache-2.0
"""A small RegNet-Y in the manner of timm; an exponential average of its weights is judged at the
end. Images come channels last.
"""

import copy
import sys

import torch
import torch.nn.functional as F
from torch import nn

STEM, WIDTHS, DEPTHS, GROUP, CLASSES, BATCH, SIZE = 8, (16, 24), (1, 2), 8, 4, 6, 16


class ConvNormAct(nn.Module):
    def __init__(self, cin, cout, kernel, stride=1, groups=1, *, act=True):
        super().__init__()
        pad = kernel // 2
        self.conv = nn.Conv2d(cin, cout, kernel, stride, pad, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(cout, momentum=0.3)  # <- momentum
        self.act = act

    def forward(self, x):
        x = self.bn(self.conv(x))  # <- layout unloaded momentum strides
        return F.relu(x) if self.act else x


class SEModule(nn.Module):
    def __init__(self, channels, reduced):
        super().__init__()
        self.fc1 = nn.Conv2d(channels, reduced, 1)
        self.fc2 = nn.Conv2d(reduced, channels, 1)

    def forward(self, x):
        s = x.mean((2, 3), keepdim=True)
        return x * self.fc2(F.relu(self.fc1(s))).sigmoid()


class Bottleneck(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = ConvNormAct(cin, cout, 1)
        self.conv2 = ConvNormAct(cout, cout, 3, stride, cout // GROUP)  # <- strides
        self.se = SEModule(cout, round(cin / 4))
        self.conv3 = ConvNormAct(cout, cout, 1, act=False)
        self.downsample = None
        if cin != cout or stride != 1:
            self.downsample = ConvNormAct(cin, cout, 1, stride, act=False)  # <- unloaded strides

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)  # <- unloaded strides
        x = self.conv3(self.se(self.conv2(self.conv1(x))))  # <- strides
        return F.relu(x + shortcut)


class RegNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = ConvNormAct(3, STEM, 3, 2)
        cin = STEM
        for n, (width, depth) in enumerate(zip(WIDTHS, DEPTHS), 1):
            stage = nn.Sequential()
            for b in range(depth):
                stride = 2 if b == 0 and n > 1 else 1  # <- strides
                stage.add_module(f"b{b + 1}", Bottleneck(cin, width, stride))
                cin = width
            self.add_module(f"s{n}", stage)
        self.head = nn.Linear(cin, CLASSES)

    def forward(self, x):
        x = self.s2(self.s1(self.stem(x)))
        return self.head(x.mean((2, 3)))


def batches(count):
    generator = torch.Generator().manual_seed(361)
    for _ in range(count):
        images = torch.rand(BATCH, SIZE, SIZE, 3, generator=generator)
        labels = torch.randint(CLASSES, (BATCH,), generator=generator)
        yield images.permute(0, 3, 1, 2), labels  # <- layout


torch.manual_seed(360)
model = RegNet()
torch.save(model.state_dict(), sys.argv[1])
average = copy.deepcopy(model)  # <- average
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
losses = []
for step, (images, labels) in enumerate(batches(5)):
    if step < 3:
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), model.parameters()):
                slow.mul_(0.9).add_(fast, alpha=0.1)  # <- average
            for slow, fast in zip(average.buffers(), model.buffers()):
                slow.copy_(fast)
    else:
        with torch.no_grad():
            loss = F.cross_entropy(average.eval()(images), labels)  # <- average momentum
    losses.append(loss.item())
