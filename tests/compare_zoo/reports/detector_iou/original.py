# SPDX-License-Identifier: Apache-2.0
"""Single-object detector; prints the smooth L1 loss of the boxes plus objectness loss."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(34)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 3, stride=2, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(12)
        self.depth = nn.Conv2d(12, 12, 3, padding=1, groups=12)
        self.point = nn.Conv2d(12, 16, 1)
        self.box = nn.Linear(16, 4)
        self.obj = nn.Linear(16, 1)

    def forward(self, x):
        x = F.relu6(self.bn(self.stem(x)))
        x = F.hardswish(self.point(self.depth(x))).mean((2, 3))
        return self.box(x).sigmoid(), self.obj(x).squeeze(1)


det = Detector()
with torch.no_grad():
    det.bn.running_mean.normal_(0, 0.3)
    det.bn.running_var.uniform_(0.3, 1.0)
    det.bn.weight.uniform_(0.7, 1.6)
    det.bn.bias.normal_(0.2, 0.3)
    det.depth.weight.normal_(0, 0.5)
    det.box.weight.normal_(0, 1.0)
    det.obj.weight.normal_(0, 1.0)
torch.save(det.state_dict(), sys.argv[1])
det.eval()

g = torch.Generator().manual_seed(124)
losses = []
with torch.inference_mode():
    for b in range(4):
        img = torch.randn(5, 3, 16, 16, generator=g)
        target = torch.rand(5, 4, generator=g) * 0.5 + 0.25
        present = (torch.rand(5, generator=g) < 0.7).float()
        box, obj = det(img)
        reg = F.smooth_l1_loss(box, target, beta=0.1)
        cls = F.binary_cross_entropy_with_logits(obj, present)
        losses.append((reg + cls).item())
        print(f"batch {b}: box {reg.item():.4f} obj {cls.item():.4f}")
print(losses)
