# SPDX-License-Identifier: Apache-2.0
"""Knowledge distillation of a residual network into a small separable one, with hints from the
middle, label smoothing, mixup and a step schedule; evaluated by an average of the weights.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel

CLASSES, BATCH, T, ALPHA, BETA = 5, 6, 4.0, 0.7, 0.3


class BasicBlock(nn.Module):
    def __init__(self, in_planes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)  # <- fold_eps
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)  # <- fold_eps
        self.shortcut = nn.Sequential(
            nn.Conv2d(in_planes, planes, 1, stride, bias=False),
            nn.BatchNorm2d(planes),  # <- fold_eps
        )

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))  # <- fold_eps
        out = self.bn2(self.conv2(out))  # <- fold_eps
        out += self.shortcut(x)  # <- fold_eps
        return F.relu(out)


class Teacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = BasicBlock(3, 8)
        self.layer2 = BasicBlock(8, 12, 2)
        self.linear = nn.Linear(12, CLASSES)

    def forward(self, x):
        middle = self.layer1(x)
        out = self.layer2(middle)
        return self.linear(out.mean((2, 3))), middle


class Separable(nn.Sequential):
    def __init__(self, cin, cout, stride):
        super().__init__(
            nn.Conv2d(cin, cin, 3, stride, 1, groups=cin, bias=False),  # <- strided
            nn.BatchNorm2d(cin),
            nn.Hardswish(),
            nn.Conv2d(cin, cout, 1, bias=False),
            nn.BatchNorm2d(cout),
        )


class SqueezeExcite(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(channels, 4, 1), nn.Conv2d(4, channels, 1)

    def forward(self, x):
        scale = F.relu(self.fc1(F.adaptive_avg_pool2d(x, 1)))
        return x * F.hardsigmoid(self.fc2(scale))  # <- gate


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.block1 = Separable(3, 6, 1)
        self.block2 = Separable(6, 10, 2)  # <- strided
        self.se = SqueezeExcite(10)
        self.regressor = nn.Conv2d(6, 8, 1)
        self.classifier = nn.Linear(10, CLASSES)

    def forward(self, x):
        middle = self.block1(x)
        x = self.se(self.block2(F.hardswish(middle)))  # <- strided
        return self.classifier(F.hardswish(x).mean((2, 3))), self.regressor(middle)


def distillation(student, teacher):
    soft = F.softmax(teacher / T, dim=1)
    log_p = F.log_softmax(student / T, dim=1)
    return F.kl_div(log_p, soft, reduction="batchmean") * T**2  # <- batchmean


torch.manual_seed(61)
teacher, student = Teacher(), Student()
for module in teacher.modules():
    if isinstance(module, nn.BatchNorm2d):
        nn.init.uniform_(module.running_mean, -0.2, 0.2)
        nn.init.uniform_(module.running_var, 0.2, 0.6)
nn.init.normal_(teacher.linear.weight, std=1.5)
torch.save({"teacher": teacher.state_dict(), "student": student.state_dict()}, sys.argv[1])
teacher.eval()
averaged = AveragedModel(student)  # <- averaging
optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
generator = torch.Generator().manual_seed(62)
losses = []
for epoch in range(4):
    images = torch.randn(BATCH, 3, 8, 8, generator=generator)
    labels = torch.randint(CLASSES, (BATCH,), generator=generator)
    lam = 0.5 + 0.5 * torch.rand((), generator=generator).item()
    perm = torch.randperm(BATCH, generator=generator)
    images = lam * images + (1 - lam) * images[perm]
    with torch.no_grad():
        target, hint = teacher(images)
    logits, guess = student(images)
    smooth = nn.CrossEntropyLoss(label_smoothing=0.1)  # <- smoothing
    hard = lam * smooth(logits, labels) + (1 - lam) * smooth(logits, labels[perm])  # <- smoothing
    loss = ALPHA * distillation(logits, target) + (1 - ALPHA) * hard  # <- batchmean
    loss = loss + BETA * F.mse_loss(guess, hint)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    averaged.update_parameters(student)  # <- averaging
    losses.append(loss.item())
with torch.no_grad():
    images = torch.randn(BATCH, 3, 8, 8, generator=generator)
    averaged.train()
    losses += averaged(images)[0].logsumexp(1).tolist()  # <- averaging
