# SPDX-License-Identifier: Apache-2.0
"""Leaf-disease classifier: two mobile networks with batch norm, their logits averaged; negative
log-likelihood plus Brier score on centre crops."""
import sys

import torch
import torch.nn.functional as F
from torch import nn

CLASSES, CROP = 6, 20


def conv_bn(cin, cout, kernel, stride=1, groups=1):
    return nn.Sequential(
        nn.Conv2d(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(cout, eps=1e-3),  # <- bneps foldmean
    )


class SqueezeExcite(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(ch, ch // 4, 1), nn.Conv2d(ch // 4, ch, 1)

    def forward(self, x):
        s = x.mean((2, 3), keepdim=True)
        s = self.fc2(F.relu(self.fc1(s)))
        return x * F.hardsigmoid(s)  # <- squeeze


class Bottleneck(nn.Module):
    def __init__(self, cin, mid, cout, kernel, stride):
        super().__init__()
        self.expand = conv_bn(cin, mid, 1)
        self.depthwise = conv_bn(mid, mid, kernel, stride, groups=mid)
        self.se = SqueezeExcite(mid)
        self.project = conv_bn(mid, cout, 1)
        self.residual = stride == 1 and cin == cout

    def forward(self, x):
        y = F.hardswish(self.expand(x))  # <- bneps foldmean
        y = self.se(F.hardswish(self.depthwise(y)))  # <- bneps foldmean
        y = self.project(y)  # <- bneps foldmean
        return x + y if self.residual else y


class MobileNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = conv_bn(3, 8, 3, 2)
        self.b1 = Bottleneck(8, 16, 8, 3, 1)
        self.b2 = Bottleneck(8, 24, 12, 5, 2)
        self.b3 = Bottleneck(12, 32, 12, 3, 1)
        self.classifier = nn.Linear(12, CLASSES)

    def forward(self, x):
        x = F.hardswish(self.stem(x))  # <- bneps foldmean
        x = self.b3(self.b2(self.b1(x)))
        return self.classifier(x.mean((2, 3)))


def centre_crop(images):
    top = (images.shape[2] - CROP) // 2  # <- crop
    left = (images.shape[3] - CROP) // 2  # <- crop
    return images[:, :, top:top + CROP, left:left + CROP]  # <- crop


torch.manual_seed(0)
ensemble = nn.ModuleList([MobileNet(), MobileNet()]).eval()
with torch.no_grad():
    for m in ensemble.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.normal_(0, 0.3)
            m.running_var.uniform_(0.1, 0.6)
            m.weight.uniform_(0.6, 1.4)
            m.bias.normal_(0, 0.3)
        elif isinstance(m, (nn.Conv2d, nn.Linear)):
            m.weight.normal_(0, 1.0 / m.weight[0].numel() ** 0.5)
torch.save(ensemble.state_dict(), sys.argv[1])

gen = torch.Generator().manual_seed(55)
losses = []
with torch.inference_mode():
    for _ in range(4):
        coarse = torch.randint(0, 256, (6, 3, 9, 11), generator=gen)
        photos = coarse.repeat_interleave(3, 2).repeat_interleave(3, 3)
        labels = torch.randint(0, CLASSES, (6,), generator=gen)
        x = centre_crop(photos.float() / 127.5 - 1)
        logits = torch.stack([member(x) for member in ensemble]).mean(0)  # <- ensemble
        brier = (logits.softmax(-1) - F.one_hot(labels, CLASSES)).square().sum(-1)  # <- ensemble
        losses.append((F.cross_entropy(logits, labels) + brier.mean()).item())
print(losses)
