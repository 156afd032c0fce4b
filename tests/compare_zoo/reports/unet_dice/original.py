# SPDX-License-Identifier: Apache-2.0
"""Small U-shaped segmentation net in batches of four; mean intersection over union per batch."""
import sys

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(26)


def unit(ci, co):
    return nn.Sequential(nn.Conv2d(ci, co, 3, padding=1), nn.BatchNorm2d(co), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.down1, self.down2 = unit(2, 8), unit(8, 12)
        self.pool = nn.MaxPool2d(2)
        self.up = nn.ConvTranspose2d(12, 8, 2, stride=2)
        self.merge = unit(16, 8)
        self.out = nn.Conv2d(8, classes, 1)

    def forward(self, x):
        skip = self.down1(x)
        deep = self.up(self.down2(self.pool(skip)))
        return self.out(self.merge(torch.cat([skip, deep], 1)))


net = UNet()
for m in net.modules():
    if isinstance(m, nn.BatchNorm2d):
        m.running_mean.normal_(0, 0.2)
        m.running_var.uniform_(0.2, 0.9)
        nn.init.uniform_(m.weight, 0.6, 1.4)
        nn.init.normal_(m.bias, std=0.2)
nn.init.normal_(net.out.weight, std=0.7)
torch.save(net.state_dict(), sys.argv[1])
net.eval()

g = torch.Generator().manual_seed(116)
images = torch.randn(12, 2, 8, 8, generator=g)
masks = torch.randint(0, 3, (12, 8, 8), generator=g)
losses = []
with torch.no_grad():
    for x, y in zip(images.split(4), masks.split(4)):
        guess = net(x).argmax(1)
        ious = []
        for c in range(3):
            inter = ((guess == c) & (y == c)).sum().item()
            union = ((guess == c) | (y == c)).sum().item()
            ious.append(inter / max(union, 1))
        losses.append(sum(ious) / 3)
        print("iou", [round(v, 3) for v in ious], f"mean {losses[-1]:.4f}")
print(losses)
