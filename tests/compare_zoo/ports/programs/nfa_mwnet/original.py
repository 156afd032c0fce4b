# SPDX-License-Identifier: Apache-2.0
"""Meta-Weight-Net: sample weights learnt by a look-ahead hypergradient on clean data."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call

torch.set_num_threads(1)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 14), nn.Tanh(), nn.Linear(14, 14), nn.Tanh())
        self.head = nn.Linear(14, 4)

    def forward(self, x):
        return self.head(self.body(x))


class WeightNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, 10), nn.Tanh(), nn.Linear(10, 1))  # <- gating

    def forward(self, per_example_loss):
        return torch.sigmoid(self.layers(per_example_loss[:, None]))[:, 0]  # <- gating


torch.manual_seed(0)
both = nn.ModuleDict({"clf": Classifier(), "vnet": WeightNet()})
torch.save(both.state_dict(), sys.argv[1])
clf, vnet = both["clf"], both["vnet"]

LR = 0.3
opt = torch.optim.SGD(clf.parameters(), lr=LR, momentum=0.9, weight_decay=5e-4)  # <- momentum_mean
opt_v = torch.optim.Adam(vnet.parameters(), lr=2e-2, eps=1e-5)

gen = torch.Generator().manual_seed(6)
proto = torch.randn(4, 6, generator=gen)


def batch(n, flip):
    y = torch.randint(0, 4, (n,), generator=gen)
    x = proto[y] + 0.7 * torch.randn(n, 6, generator=gen)
    bad = torch.rand(n, generator=gen) < flip  # <- flip_mask
    return x, torch.where(bad, torch.randint(0, 4, (n,), generator=gen), y)  # <- flip_mask


losses = []
for it in range(5):
    x, y = batch(16, 0.4)
    xm, ym = batch(8, 0.0)

    # 1. virtual step
    names, params = zip(*clf.named_parameters())
    cost = F.cross_entropy(clf(x), y, reduction="none")
    w = vnet(cost.detach())
    inner = (w * cost).sum() / w.sum().detach()  # <- sum_attached
    grads = torch.autograd.grad(inner, params, create_graph=True)  # <- sum_attached
    virtual = {n: p - LR * g for n, p, g in zip(names, params, grads)}

    # 2. meta step
    meta_loss = F.cross_entropy(functional_call(clf, virtual, (xm,)), ym)
    opt_v.zero_grad()
    meta_loss.backward()
    opt_v.step()  # <- weights_stale

    # 3. actual step
    opt.zero_grad()
    cost = F.cross_entropy(clf(x), y, reduction="none")
    with torch.no_grad():
        w = vnet(cost)  # <- weights_stale
        w = w / w.sum()
    loss = (w * cost).sum()
    loss.backward()
    opt.step()  # <- momentum_mean
    losses.append(loss.item() + meta_loss.item())

print(losses)
