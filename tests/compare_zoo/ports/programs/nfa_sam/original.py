# SPDX-License-Identifier: Apache-2.0
"""Tabular regression: sharpness-aware minimisation around AdamW, a tail average of weights."""
import sys

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

torch.set_num_threads(1)


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base_cls, rho=0.05, **kw):
        super().__init__(params, dict(rho=rho, **kw))
        self.base = base_cls(self.param_groups, **kw)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def climb(self):
        grads = [p.grad for g in self.param_groups for p in g["params"]]
        norm = torch.stack([g.norm() for g in grads]).norm()
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["backup"] = p.detach().clone()  # <- no_restore
                p.add_(p.grad * (group["rho"] / (norm + 1e-12)))
        self.zero_grad()

    @torch.no_grad()
    def descend(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.copy_(self.state[p].pop("backup"))  # <- no_restore
        self.base.step()  # <- weight_decay
        self.zero_grad()


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.ln = nn.LayerNorm(d)  # <- ln_variance
        self.up = nn.Linear(d, 2 * d)
        self.down = nn.Linear(2 * d, d)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.ln(x))))  # <- ln_variance


class TabNet(nn.Module):
    def __init__(self, n_in=7, d=12, depth=2):
        super().__init__()
        self.stem = nn.Linear(n_in, d)
        self.blocks = nn.ModuleList([Block(d) for _ in range(depth)])
        self.head = nn.Linear(d, 1)

    def forward(self, x):
        h = self.stem(x)
        for b in self.blocks:
            h = b(h)
        return self.head(h).squeeze(-1)


torch.manual_seed(0)
model = TabNet()
torch.save(model.state_dict(), sys.argv[1])
swa = AveragedModel(model)

opt = SAM(model.parameters(), torch.optim.AdamW, rho=0.1, lr=3e-3,  # <- weight_decay
          betas=(0.9, 0.95), eps=1e-6, weight_decay=0.05)  # <- weight_decay
gen = torch.Generator().manual_seed(3)
X = torch.randn(32, 7, generator=gen)
Y = X[:, 0] * X[:, 1] + X[:, 2].sin() + 0.1 * torch.randn(32, generator=gen)
crit = nn.HuberLoss(delta=0.8)  # <- huber_scale

losses = []
for step in range(5):
    idx = torch.randperm(32, generator=gen)[:16]
    x, y = X[idx], Y[idx]
    loss = crit(model(x), y)  # <- huber_scale
    loss.backward()
    opt.climb()
    crit(model(x), y).backward()  # <- huber_scale
    opt.descend()  # <- weight_decay
    if step >= 2:  # <- tail_start
        swa.update_parameters(model)  # <- tail_start
    losses.append(loss.item())

with torch.no_grad():
    losses[-1] += crit(swa(X), Y).item()  # <- huber_scale
print(losses)
