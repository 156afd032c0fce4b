# SPDX-License-Identifier: Apache-2.0
"""Tiny MobileNetV2 with SGD, label smoothing and batch-norm statistics frozen late."""
import sys

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

CLASSES = 5
FREEZE_BN_AT = 2


class ConvBNReLU(nn.Sequential):
    def __init__(self, cin, cout, kernel=3, stride=1, groups=1):
        super().__init__(
            nn.Conv2d(cin, cout, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False),  # <- same_padding
            nn.BatchNorm2d(cout, momentum=0.1),  # <- bn_momentum
            nn.ReLU6(inplace=True))


class InvertedResidual(nn.Module):
    def __init__(self, cin, cout, stride, expand):
        super().__init__()
        mid = cin * expand
        self.use_res = stride == 1 and cin == cout
        self.conv = nn.Sequential(
            ConvBNReLU(cin, mid, kernel=1),
            ConvBNReLU(mid, mid, stride=stride, groups=mid),
            nn.Conv2d(mid, cout, 1, bias=False),
            nn.BatchNorm2d(cout, momentum=0.1))  # <- bn_momentum

    def forward(self, x):
        return x + self.conv(x) if self.use_res else self.conv(x)  # <- same_padding bn_momentum bn_not_frozen


class MobileNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            ConvBNReLU(3, 8, stride=2),
            InvertedResidual(8, 12, stride=2, expand=2),
            InvertedResidual(12, 12, stride=1, expand=2),
            ConvBNReLU(12, 24, kernel=1))
        self.classifier = nn.Linear(24, CLASSES)

    def forward(self, x):
        x = self.features(x)  # <- same_padding bn_momentum bn_not_frozen
        return self.classifier(x.mean([2, 3]))


def freeze_bn(model):
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.eval()  # <- bn_not_frozen


model = MobileNet()
np.savez(sys.argv[1], **{k: v.detach().numpy() for k, v in model.state_dict().items()})

criterion = nn.CrossEntropyLoss(label_smoothing=0.2)  # <- smoothing_off_value
optimizer = torch.optim.SGD([
    {"params": model.features.parameters(), "lr": 0.05},  # <- backbone_lr_lost
    {"params": model.classifier.parameters(), "lr": 0.2},
], momentum=0.9, weight_decay=1e-3)

rng = np.random.RandomState(21)
images = rng.randn(4, 8, 3, 16, 16).astype(np.float32) + 0.5
labels = rng.randint(0, CLASSES, size=(4, 8))

losses = []
model.train()
for epoch in range(4):
    if epoch >= FREEZE_BN_AT:
        freeze_bn(model)  # <- bn_not_frozen
    output = model(torch.from_numpy(images[epoch]))
    loss = criterion(output, torch.from_numpy(labels[epoch]))  # <- smoothing_off_value
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- backbone_lr_lost
    losses.append(loss.item())
print(losses)
