# SPDX-License-Identifier: Apache-2.0
"""FixMatch with a mean teacher: weak and strong views, pseudo labels over a threshold, consistency ramp."""
import copy
import math
import sys

import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(64)

SIZE, CLASSES, LABELLED, UNLABELLED, STEPS, THRESHOLD = 8, 4, 6, 10, 6, 0.45


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(2, 8, 3, padding=1, bias=False), nn.GroupNorm(2, 8), nn.LeakyReLU(0.1),
            nn.Conv2d(8, 12, 3, stride=2, padding=1, bias=False), nn.GroupNorm(3, 12), nn.LeakyReLU(0.1))
        self.fc = nn.Linear(12, CLASSES)
        nn.init.normal_(self.fc.weight, std=0.8)

    def forward(self, x):
        return self.fc(self.features(x).mean((2, 3)))


def weak(x, rng):
    flip = torch.rand(len(x), generator=rng) < 0.5
    x = torch.where(flip[:, None, None, None], x.flip(-1), x)
    dy, dx = torch.randint(-1, 2, (2,), generator=rng).tolist()
    return torch.roll(x, (dy, dx), (2, 3))


def strong(x, rng):
    x = weak(x, rng)
    gain = 0.6 + 0.8 * torch.rand(len(x), 1, 1, 1, generator=rng)
    x = x * gain
    for i in range(len(x)):
        top, left = torch.randint(0, SIZE - 3, (2,), generator=rng).tolist()
        x[i, :, top:top + 4, left:left + 4] = 0.0
    return x


def ramp(step):
    return math.exp(-5.0 * (1 - min(1.0, (step + 2) / STEPS)) ** 2)


student = ConvNet()
torch.save(student.state_dict(), sys.argv[1])
teacher = copy.deepcopy(student)
for p in teacher.parameters():
    p.requires_grad_(False)

g = torch.Generator().manual_seed(7)
prototypes = torch.randn(CLASSES, 2, SIZE, SIZE, generator=g)
y_all = torch.randint(0, CLASSES, (60,), generator=g)
x_all = prototypes[y_all] + 0.7 * torch.randn(60, 2, SIZE, SIZE, generator=g)

optimizer = torch.optim.SGD(student.parameters(), lr=0.08, momentum=0.9, nesterov=True, weight_decay=5e-4)
losses = []
for step in range(STEPS):
    labelled = torch.randint(0, 20, (LABELLED,), generator=g)
    unlabelled = 20 + torch.randint(0, 40, (UNLABELLED,), generator=g)
    x_l = weak(x_all[labelled], g)
    x_w = weak(x_all[unlabelled], g)
    x_s = strong(x_all[unlabelled], g)

    supervised = F.cross_entropy(student(x_l), y_all[labelled])
    with torch.no_grad():
        target = teacher(x_w).softmax(-1)
        confidence, pseudo = target.max(-1)
        mask = (confidence >= THRESHOLD).float()
    strong_logits = student(x_s)
    fixmatch = (F.cross_entropy(strong_logits, pseudo, reduction="none") * mask).mean()
    consistency = F.mse_loss(student(x_w).softmax(-1), target)
    loss = supervised + fixmatch + 2.0 * ramp(step) * consistency

    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    alpha = min(1 - 1 / (step + 1), 0.9)
    with torch.no_grad():
        for t, s in zip(teacher.parameters(), student.parameters()):
            t.mul_(alpha).add_(s, alpha=1 - alpha)
    losses.append(loss.item())

print(losses)
