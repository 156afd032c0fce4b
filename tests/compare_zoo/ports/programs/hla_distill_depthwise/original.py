# SPDX-License-Identifier: Apache-2.0
"""Distil a frozen CNN teacher into a depthwise-separable student: KL at T=3, hard labels,
feature hint."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

K, T = 7, 3.0


class Teacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(),
                                  nn.Conv2d(16, 24, 3, 1, 1), nn.ReLU())
        self.fc = nn.Linear(24, K)

    def forward(self, x):
        f = self.body(x)
        return (F.adaptive_avg_pool2d(f, 1).flatten(1),
                self.fc(F.adaptive_avg_pool2d(f, 1).flatten(1)))


class SeparableConv(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.depthwise = nn.Conv2d(cin, cin, 3, stride, 1, groups=cin, bias=False)  # <- pad_side
        self.pointwise = nn.Conv2d(cin, cout, 1, bias=False)
        self.norm = nn.GroupNorm(2, cout)  # <- group_axis

    def forward(self, x):
        return F.hardswish(self.norm(self.pointwise(self.depthwise(x))))  # <- group_axis pad_side


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = SeparableConv(3, 8, 2)
        self.conv2 = SeparableConv(8, 12)
        self.classifier = nn.Linear(12, K)
        self.hint = nn.Linear(12, 24)

    def forward(self, x):
        f = self.conv2(self.conv1(x)).mean(dim=(2, 3))
        return f, self.classifier(f)


class Distiller(nn.Module):
    def __init__(self):
        super().__init__()
        self.teacher, self.student = Teacher(), Student()
        for p in self.teacher.parameters():
            p.requires_grad = False

    def forward(self, x, y):
        with torch.no_grad():
            tf, tl = self.teacher(x)
        sf, sl = self.student(x)
        kd = F.kl_div(F.log_softmax(sl / T, 1), F.softmax(tl / T, 1),  # <- soft_scale
                      reduction="batchmean") * T * T  # <- soft_scale
        hard = F.cross_entropy(sl, y)
        hint = F.mse_loss(self.student.hint(sf), tf)
        return 0.7 * kd + 0.3 * hard + 0.5 * hint


torch.manual_seed(3)
model = Distiller()
torch.save(model.state_dict(), sys.argv[1])

backbone = [p for n, p in model.student.named_parameters() if n.startswith("conv")]
heads = [p for n, p in model.student.named_parameters() if not n.startswith("conv")]
opt_backbone = torch.optim.SGD(backbone, lr=0.1, momentum=0.8,  # <- dampening rate_decay
                               dampening=0.2)  # <- dampening rate_decay
opt_heads = torch.optim.Adam(heads, lr=5e-3, eps=1e-6)
sched = torch.optim.lr_scheduler.ExponentialLR(opt_backbone, 0.8)  # <- rate_decay

g = torch.Generator().manual_seed(21)
xs = torch.randn(4, 12, 3, 10, 10, generator=g)
ys = torch.randint(0, K, (4, 12), generator=g)
losses = []
for x, y in zip(xs, ys):
    loss = model(x, y)
    opt_backbone.zero_grad()
    opt_heads.zero_grad()
    loss.backward()
    opt_heads.step()
    opt_backbone.step()  # <- dampening rate_decay
    sched.step()  # <- rate_decay
    losses.append(loss.item())
print(losses)
