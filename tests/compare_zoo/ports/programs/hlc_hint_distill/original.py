# SPDX-License-Identifier: Apache-2.0
"""Online distillation: a deep teacher learns labels, a thin student learns logits and hints."""
import sys
import torch
from torch import nn
import torch.nn.functional as F


class MLP(nn.Module):
    def __init__(self, widths, slope):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
        self.slope = slope

    def forward(self, x):
        feats = []
        for layer in self.layers[:-1]:
            x = F.leaky_relu(layer(x), self.slope)  # <- preact
            feats.append(x)  # <- preact
        return self.layers[-1](x), feats


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.teacher = MLP([12, 32, 32, 24, 7], 0.1)
        self.student = MLP([12, 10, 10, 7], 0.1)
        self.hint0 = nn.Linear(10, 32, bias=False)
        self.hint1 = nn.Linear(10, 24, bias=False)


torch.manual_seed(0)
net = Pair()
torch.save(net.state_dict(), sys.argv[1])
opt_t = torch.optim.Adagrad(net.teacher.parameters(), lr=0.02, eps=1e-4,  # <- accumulator
                            initial_accumulator_value=1e-3)  # <- accumulator
student_side = [*net.student.parameters(), *net.hint0.parameters(), *net.hint1.parameters()]
opt_s = torch.optim.SGD(student_side, lr=0.05, momentum=0.9, dampening=0.1,  # <- dampening
                        weight_decay=1e-3)  # <- dampening
T, g = 3.0, torch.Generator().manual_seed(77)
losses = []
for _ in range(5):
    x = torch.randn(20, 12, generator=g)
    y = torch.randint(0, 7, (20,), generator=g)

    net.teacher.train()
    logits_t, feats_t = net.teacher(x)
    loss_t = F.cross_entropy(logits_t, y)
    opt_t.zero_grad()
    loss_t.backward()

    logits_s, feats_s = net.student(x)
    soft = F.kl_div(F.log_softmax(logits_s / T, 1),  # <- temperature detach
                    F.softmax(logits_t.detach() / T, 1),  # <- temperature detach
                    reduction="batchmean") * T * T  # <- temperature
    hard = F.cross_entropy(logits_s, y)
    hint = (F.mse_loss(net.hint0(feats_s[0]), feats_t[1].detach())  # <- preact detach
            + F.mse_loss(net.hint1(feats_s[1]), feats_t[2].detach()))  # <- preact detach
    loss_s = 0.7 * soft + 0.3 * hard + 0.5 * hint
    opt_s.zero_grad()
    loss_s.backward()

    opt_t.step()  # <- accumulator
    opt_s.step()  # <- dampening
    losses.append(loss_s.item() + loss_t.item())
print(losses)
