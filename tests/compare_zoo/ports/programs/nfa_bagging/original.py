# SPDX-License-Identifier: Apache-2.0
"""Bagged classifiers with FGSM examples; each member has its own Adam, one is restarted midway."""
import copy
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MEMBERS = 4
LRS = [1e-3, 2e-3, 3e-3, 4e-3]


class Member(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 16)
        self.fc3 = nn.Linear(16, 3)

    def forward(self, x):
        x = F.softplus(self.fc1(x))
        x = x + torch.tanh(self.fc2(x))  # <- skip_lost
        return self.fc3(x)  # <- skip_lost


def make_optimizer(net, lr):
    return torch.optim.Adam(net.parameters(), lr=lr, eps=1e-5, weight_decay=1e-3)  # <- eps_spot


def fgsm(net, x, y, eps):
    x = x.clone().requires_grad_(True)
    loss = F.cross_entropy(net(x), y)
    (gx,) = torch.autograd.grad(loss, x)
    return (x + eps * gx.sign()).detach()  # <- attack_sign


torch.manual_seed(0)
ensemble = nn.ModuleList([Member() for _ in range(MEMBERS)])
torch.save(ensemble.state_dict(), sys.argv[1])
initial = copy.deepcopy(ensemble.state_dict())
opts = [make_optimizer(net, lr) for net, lr in zip(ensemble, LRS)]

gen = torch.Generator().manual_seed(14)
X = torch.randn(40, 8, generator=gen)
Y = (X[:, 0] + X[:, 1] ** 2).gt(0.5).long() + (X[:, 2] > 1).long()  # <- label_square
xv = torch.randn(10, 8, generator=gen)

losses = []
for step in range(5):
    if step == 3:
        # restart the second member from its first weights
        ensemble[1].load_state_dict({k[2:]: v for k, v in initial.items() if k.startswith("1.")})
        opts[1] = make_optimizer(ensemble[1], LRS[1])  # <- count_kept
    total = 0.0
    for net, opt in zip(ensemble, opts):
        pick = torch.randint(0, 40, (12,), generator=gen)
        x, y = X[pick], Y[pick]
        x_adv = fgsm(net, x, y, 0.05)
        opt.zero_grad()
        loss = 0.5 * F.cross_entropy(net(x), y) + 0.5 * F.cross_entropy(net(x_adv), y)
        loss.backward()
        opt.step()  # <- count_kept eps_spot
        total += loss.item()
    with torch.no_grad():
        probs = torch.stack([net(xv).softmax(-1) for net in ensemble])
        disagreement = probs.var(dim=0).sum(-1).mean()
    losses.append(total / MEMBERS + disagreement.item())

print(losses)
