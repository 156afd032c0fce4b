# SPDX-License-Identifier: Apache-2.0
"""SimCLR with a learnt temperature: NT-Xent over the gathered 2N x 2N similarity matrix."""
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(23)


class Encoder(nn.Module):
    def __init__(self, width=8, out=16):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.gn1 = nn.GroupNorm(2, width)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.gn2 = nn.GroupNorm(4, 2 * width)
        self.fc = nn.Linear(2 * width, out)

    def forward(self, x):
        x = F.relu(self.gn1(self.conv1(x)))
        x = F.relu(self.gn2(self.conv2(x)))
        return self.fc(x.mean(dim=(2, 3)))


class SimCLR(nn.Module):
    def __init__(self, feat=16, proj=12):
        super().__init__()
        self.encoder = Encoder(out=feat)
        self.projector = nn.Sequential(nn.Linear(feat, 32), nn.ReLU(inplace=True), nn.Linear(32, proj))
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.5)))

    def forward(self, x):
        return F.normalize(self.projector(self.encoder(x)), dim=1)


def nt_xent(z, logit_scale):
    n = z.shape[0] // 2
    sim = z @ z.t() * logit_scale.exp()
    sim = sim.masked_fill(torch.eye(2 * n, dtype=torch.bool), float("-inf"))
    target = torch.cat([torch.arange(n, 2 * n), torch.arange(n)])
    return F.cross_entropy(sim, target)


def augment(x, gen):
    flip = torch.rand(x.shape[0], generator=gen) < 0.5
    x = torch.where(flip[:, None, None, None], x.flip(-1), x)
    gain = 1 + 0.4 * (torch.rand(x.shape[0], 3, 1, 1, generator=gen) - 0.5)
    return x * gain + 0.1 * torch.randn(x.shape, generator=gen)


class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, weight_decay=1e-4, momentum=0.9, eta=0.01):
        super().__init__(params, dict(lr=lr, weight_decay=weight_decay, momentum=momentum, eta=eta))

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            for p in g["params"]:
                dp = p.grad
                if p.ndim > 1:
                    dp = dp.add(p, alpha=g["weight_decay"])
                    pn, un = torch.norm(p), torch.norm(dp)
                    q = torch.where(pn > 0, torch.where(un > 0, g["eta"] * pn / un, torch.ones(())), torch.ones(()))
                    dp = dp.mul(q)
                state = self.state[p]
                if "mu" not in state:
                    state["mu"] = torch.zeros_like(p)
                state["mu"].mul_(g["momentum"]).add_(dp)
                p.add_(state["mu"], alpha=-g["lr"])


model = SimCLR()
torch.save(model.state_dict(), sys.argv[1])
optimizer = LARS(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)
gen = torch.Generator().manual_seed(4)
losses = []
for step in range(5):
    x = torch.randn(8, 3, 12, 12, generator=gen)
    v1, v2 = augment(x, gen), augment(x, gen)
    z = model(torch.cat([v1, v2]))
    loss = nt_xent(z, model.logit_scale)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())
print(losses)
