# SPDX-License-Identifier: Apache-2.0
"""Mean-teacher semi-supervised classifier: a student learns from labels and an EMA teacher."""
import copy
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

STEPS, DECAY, LR, WD = 5, 0.97, 3e-3, 0.05


class Classifier(nn.Module):
    def __init__(self, d_in=12, width=24, classes=5):
        super().__init__()
        self.stem = nn.Linear(d_in, width)
        self.norm = nn.LayerNorm(width)
        self.body = nn.Sequential(  # <- quick_gelu
            nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))  # <- quick_gelu
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        h = self.norm(torch.tanh(self.stem(x)))
        h = h + self.body(h)  # <- quick_gelu
        return self.head(h)


def make_batches():
    g = torch.Generator().manual_seed(11)
    for _ in range(STEPS):
        x = torch.randn(16, 12, generator=g)
        y = torch.randint(0, 5, (16,), generator=g)
        u = torch.randn(32, 12, generator=g)
        jitter = 0.1 * torch.randn(2, 32, 12, generator=g)
        yield x, y, u + jitter[0], u + jitter[1]  # <- same_jitter


torch.manual_seed(0)
student = Classifier()
torch.save(student.state_dict(), sys.argv[1])
teacher = copy.deepcopy(student)
for p in teacher.parameters():
    p.requires_grad_(False)

decay = [p for p in student.parameters() if p.ndim > 1]
no_decay = [p for p in student.parameters() if p.ndim <= 1]  # <- decay_all
opt = torch.optim.AdamW([{"params": decay, "weight_decay": WD},  # <- decay_all
                         {"params": no_decay, "weight_decay": 0.0}], lr=LR)  # <- decay_all


@torch.no_grad()
def update_teacher(step):
    d = min(DECAY, (1 + step) / (10 + step))
    for t, s in zip(teacher.parameters(), student.parameters()):
        t.lerp_(s, 1.0 - d)  # <- teacher_first


losses = []
for step, (x, y, u1, u2) in enumerate(make_batches()):
    sup = F.cross_entropy(student(x), y)
    pred = F.softmax(student(u1), dim=-1)
    with torch.no_grad():
        target = F.softmax(teacher(u2), dim=-1)  # <- same_jitter
    cons = F.mse_loss(pred, target)  # <- class_sum
    loss = sup + 5.0 * cons
    opt.zero_grad()
    loss.backward()
    opt.step()  # <- decay_all
    update_teacher(step)  # <- teacher_first
    losses.append(loss.item())

print(losses)
