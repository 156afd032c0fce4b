# SPDX-License-Identifier: Apache-2.0
"""Semi-supervised 1-d conv classifier: virtual adversarial training against an EMA teacher."""
import copy
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


class SignalNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(2, 8, 5, padding=2), nn.SiLU(),  # <- pad_side
            nn.Conv1d(8, 12, 3, stride=2, padding=1), nn.SiLU(),  # <- pad_side
        )
        self.norm = nn.GroupNorm(3, 12)
        self.classifier = nn.Linear(12, classes)

    def forward(self, x):
        h = self.norm(self.features(x))  # <- pad_side
        return self.classifier(h.mean(dim=-1))


def unit(d):
    return d / d.flatten(1).norm(dim=1).clamp_min(1e-8)[:, None, None]  # <- unit_axis


def kl(p_logits, q_logits):
    return F.kl_div(F.log_softmax(q_logits, 1), F.softmax(p_logits, 1),  # <- kl_direction
                    reduction="batchmean")


torch.manual_seed(0)
student = SignalNet()
torch.save(student.state_dict(), sys.argv[1])
teacher = copy.deepcopy(student)
for p in teacher.parameters():
    p.requires_grad_(False)

opt = torch.optim.SGD(student.parameters(), lr=0.08,  # <- plain_momentum
                      momentum=0.9, nesterov=True, weight_decay=1e-3)  # <- plain_momentum
gen = torch.Generator().manual_seed(11)
losses = []
for it in range(5):
    xl = torch.randn(6, 2, 16, generator=gen)
    yl = torch.randint(0, 4, (6,), generator=gen)
    xu = torch.randn(10, 2, 16, generator=gen)
    d = unit(torch.randn(10, 2, 16, generator=gen))  # <- unit_axis

    with torch.no_grad():
        target = teacher(xu)
    # one power iteration on the student for the direction of largest change
    d.requires_grad_(True)
    div = kl(target, student(xu + 1.0 * d))  # <- kl_direction
    (g,) = torch.autograd.grad(div, d)
    r_adv = 2.0 * unit(g.detach())  # <- unit_axis

    opt.zero_grad()
    sup = F.cross_entropy(student(xl), yl)
    lds = kl(target, student(xu + r_adv))  # <- kl_direction
    weight = min(1.0, (it + 1) / 3) * 0.7
    loss = sup + weight * lds
    loss.backward()
    opt.step()  # <- plain_momentum

    decay = min(0.9, (it + 1) / (it + 4))  # <- decay_shift
    with torch.no_grad():
        for pt, ps in zip(teacher.parameters(), student.parameters()):
            pt.mul_(decay).add_(ps, alpha=1 - decay)  # <- decay_shift
    losses.append(loss.item())

print(losses)
