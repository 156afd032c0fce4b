# SPDX-License-Identifier: Apache-2.0
"""torchvision-like ResNet with basic blocks in eval mode, checked on a few random images."""
import sys

import torch
import torch.nn as nn
from torch import Tensor


def conv3x3(in_planes: int, out_planes: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(in_planes, out_planes, kernel_size=3, stride=stride, padding=1, bias=False)


class BasicBlock(nn.Module):
    def __init__(self, inplanes: int, planes: int, stride: int = 1, downsample=None) -> None:
        super().__init__()
        self.conv1 = conv3x3(inplanes, planes, stride)  # <- stride_place
        self.bn1 = nn.BatchNorm2d(planes)  # <- fold_eps
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = conv3x3(planes, planes)  # <- stride_place
        self.bn2 = nn.BatchNorm2d(planes)  # <- fold_eps
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.conv1(x)  # <- stride_place
        out = self.bn1(out)  # <- fold_eps fold_mean
        out = self.relu(out)
        out = self.conv2(out)  # <- stride_place
        out = self.bn2(out)  # <- fold_eps fold_mean
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity  # <- late_relu
        out = self.relu(out)  # <- late_relu
        return out


class ResNet(nn.Module):
    def __init__(self, widths=(8, 12, 16), num_classes: int = 10) -> None:
        super().__init__()
        self.inplanes = widths[0]
        self.conv1 = nn.Conv2d(3, widths[0], kernel_size=5, stride=1, padding=2, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])  # <- fold_eps
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)  # <- stem_pool
        self.layer1 = self._make_layer(widths[0], 1)
        self.layer2 = self._make_layer(widths[1], 1, stride=2)
        self.layer3 = self._make_layer(widths[2], 2, stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(widths[2], num_classes)

    def _make_layer(self, planes: int, blocks: int, stride: int = 1) -> nn.Sequential:
        downsample = None
        if stride != 1 or self.inplanes != planes:
            downsample = nn.Sequential(
                nn.Conv2d(self.inplanes, planes, kernel_size=1, stride=stride, bias=False),
                nn.BatchNorm2d(planes),
            )
        layers = [BasicBlock(self.inplanes, planes, stride, downsample)]
        self.inplanes = planes
        layers += [BasicBlock(planes, planes) for _ in range(1, blocks)]
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))  # <- fold_eps fold_mean
        x = self.maxpool(x)  # <- stem_pool
        x = self.layer3(self.layer2(self.layer1(x)))
        x = self.avgpool(x)
        x = torch.flatten(x, 1)
        return self.fc(x)


def randomise_statistics(model: nn.Module) -> None:
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            nn.init.uniform_(m.weight, 0.7, 1.5)
            nn.init.normal_(m.bias, std=0.2)
            m.running_mean.normal_(std=0.3)
            m.running_var.uniform_(0.3, 2.0)
        elif isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_in", nonlinearity="relu")


if __name__ == "__main__":
    torch.manual_seed(0)
    model = ResNet().eval()
    randomise_statistics(model)
    torch.save(model.state_dict(), sys.argv[1])
    generator = torch.Generator().manual_seed(33)
    losses = []
    with torch.no_grad():
        for _ in range(4):
            image = torch.randn(2, 3, 20, 20, generator=generator)
            logits = model(image)
            print("top1", logits.argmax(1).tolist(), "mean", logits.mean().item())
            losses.append(logits.max().item() + logits.square().mean().item())
    print(losses)
