# SPDX-License-Identifier: Apache-2.0
"""Masked affine-coupling flow with actnorm and free linear mixing, trained by likelihood."""
import math
import sys
import torch
from torch import nn


class Step(nn.Module):
    def __init__(self, d, flip, h=16):
        super().__init__()
        self.log_s = nn.Parameter(0.1 * torch.randn(d))
        self.shift = nn.Parameter(0.1 * torch.randn(d))
        self.W = nn.Parameter(torch.linalg.qr(torch.randn(d, d))[0].contiguous())
        mask = (torch.arange(d) % 2 == int(flip)).float()
        self.register_buffer("mask", mask)
        self.s = nn.Sequential(nn.Linear(d, h), nn.Tanh(), nn.Linear(h, d))
        self.t = nn.Sequential(nn.Linear(d, h), nn.Tanh(), nn.Linear(h, d))

    def forward(self, x):
        x = (x + self.shift) * self.log_s.exp()  # <- actnorm_order
        logdet = self.log_s.sum()
        x = x @ self.W.T
        logdet = logdet + torch.linalg.slogdet(self.W)[1]  # <- inverse_transpose
        keep = x * self.mask
        s = torch.tanh(self.s(keep)) * (1 - self.mask)
        t = self.t(keep) * (1 - self.mask)
        x = keep + (1 - self.mask) * (x * s.exp() + t)  # <- order
        return x, logdet + s.sum(1)


class Flow(nn.Module):
    def __init__(self, d=6, n=3):
        super().__init__()
        self.steps = nn.ModuleList(Step(d, i % 2 == 1) for i in range(n))

    def log_prob(self, x):
        total = x.new_zeros(x.size(0))
        for step in self.steps:
            x, ld = step(x)
            total = total + ld
        base = torch.distributions.Normal(0.0, 1.0)
        return base.log_prob(x).sum(1) + total


torch.manual_seed(0)
flow = Flow()
torch.save(flow.state_dict(), sys.argv[1])
g = torch.Generator().manual_seed(8)
mix = torch.randn(6, 6, generator=g)
opt = torch.optim.Adam(flow.parameters(), lr=5e-3, eps=1e-4)
sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)  # <- decay_ahead
losses = []
for _ in range(5):
    x = torch.tanh(torch.randn(32, 6, generator=g) @ mix)
    loss = -flow.log_prob(x).mean() / (6 * math.log(2))      # bits per dimension
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(flow.parameters(), 0.5)  # <- clip_square
    opt.step()  # <- clip_square decay_ahead
    sched.step()  # <- decay_ahead
    losses.append(loss.item())
print(losses)
