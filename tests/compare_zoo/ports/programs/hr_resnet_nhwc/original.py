# SPDX-License-Identifier: Apache-2.0
"""A CIFAR-style residual network from torchvision blocks, SGD with Nesterov momentum and step decay."""
import sys

import torch
from torch import nn
from torchvision.models.resnet import BasicBlock, Bottleneck, conv1x1

torch.set_num_threads(1)

CLASSES, STEPS, BATCH = 5, 5, 8


class SmallResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inplanes = 8
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = self.make_layer(BasicBlock, 8, 1, 1)
        self.layer2 = self.make_layer(BasicBlock, 12, 2, 2)
        self.layer3 = self.make_layer(Bottleneck, 6, 1, 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(24, CLASSES)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def make_layer(self, block, planes, blocks, stride):
        downsample = None
        if stride != 1 or self.inplanes != planes * block.expansion:
            downsample = nn.Sequential(
                conv1x1(self.inplanes, planes * block.expansion, stride), nn.BatchNorm2d(planes * block.expansion)
            )
        layers = [block(self.inplanes, planes, stride, downsample)]
        self.inplanes = planes * block.expansion
        layers += [block(self.inplanes, planes) for _ in range(1, blocks)]
        return nn.Sequential(*layers)

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(self.avgpool(x).flatten(1))


torch.manual_seed(17)
model = SmallResNet()
torch.save(model.state_dict(), sys.argv[1])

optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True, weight_decay=5e-4)
scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[2, 4], gamma=0.3)
criterion = nn.CrossEntropyLoss()

g = torch.Generator().manual_seed(55)
losses = []
model.train()
for _ in range(STEPS):
    x = torch.rand(BATCH, 3, 16, 16, generator=g)
    y = torch.randint(0, CLASSES, (BATCH,), generator=g)
    x = (x - 0.45) / 0.25
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())

print(losses)
