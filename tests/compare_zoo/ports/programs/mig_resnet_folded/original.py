# SPDX-License-Identifier: Apache-2.0
"""A head on a frozen ResNet-D: batch norms in eval, mixed images, a cosine classifier."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

CLASSES, BATCH, SIZE, WIDTH = 5, 6, 14, 8


class Bottleneck(nn.Module):
    def __init__(self, cin, mid, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, mid, 1, bias=False)  # <- stride
        self.bn1 = nn.BatchNorm2d(mid)  # <- folded
        self.conv2 = nn.Conv2d(mid, mid, 3, stride=stride, padding=1, bias=False)  # <- stride
        self.bn2 = nn.BatchNorm2d(mid)
        self.conv3 = nn.Conv2d(mid, cout, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(cout)
        self.pool = nn.AvgPool2d(2, stride, ceil_mode=True, count_include_pad=False)  # <- edge
        self.down = nn.Conv2d(cin, cout, 1, bias=False)
        self.down_bn = nn.BatchNorm2d(cout)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))  # <- folded stride
        y = F.relu(self.bn2(self.conv2(y)))  # <- stride folded
        y = self.bn3(self.conv3(y))  # <- folded
        return F.relu(y + self.down_bn(self.down(self.pool(x))))  # <- edge folded


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, WIDTH, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(WIDTH)
        self.stage1 = Bottleneck(WIDTH, 6, 16, 2)
        self.stage2 = Bottleneck(16, 8, 24, 2)

    def forward(self, x):
        x = F.relu(self.bn(self.conv(x)))  # <- folded
        return self.stage2(self.stage1(x)).mean((2, 3))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = Backbone()
        self.hidden = nn.Linear(24, 12)
        self.prototypes = nn.Parameter(torch.randn(CLASSES, 12))
        self.scale = nn.Parameter(torch.tensor(8.0))

    def forward(self, x):
        with torch.no_grad():
            x = self.backbone(x)
        x = F.normalize(torch.tanh(self.hidden(x)), dim=1)
        return self.scale * x @ F.normalize(self.prototypes, dim=1).t()


torch.manual_seed(181)
model = Classifier()
with torch.no_grad():
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.weight.uniform_(0.5, 1.5)
            module.bias.normal_(0.0, 0.3)
            module.running_mean.normal_(0.0, 0.3)
            module.running_var.uniform_(0.3, 1.2)
torch.save(model.state_dict(), sys.argv[1])

model.train()
model.backbone.eval()
head = [model.hidden.weight, model.hidden.bias, model.prototypes, model.scale]
optimizer = torch.optim.SGD(head, lr=0.1, momentum=0.9)  # <- velocity
milestones = torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 3], gamma=0.2)
generator = torch.Generator().manual_seed(182)
losses = []
for _ in range(5):
    images = torch.rand(BATCH, 3, SIZE, SIZE, generator=generator)
    labels = torch.randint(CLASSES, (BATCH,), generator=generator)
    part = 0.5 + 0.5 * torch.rand((), generator=generator)
    order = torch.randperm(BATCH, generator=generator)
    mixed = part * images + (1 - part) * images[order]  # <- mixed
    logits = model(mixed)
    loss = part * F.cross_entropy(logits, labels)  # <- mixed
    loss = loss + (1 - part) * F.cross_entropy(logits, labels[order])  # <- mixed
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- velocity
    milestones.step()
    losses.append(loss.item())
