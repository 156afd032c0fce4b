# SPDX-License-Identifier: Apache-2.0
"""Normalising flow of affine couplings on tabular points; log-likelihood of every batch."""
import math
import sys

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(37)


class Coupling(nn.Module):
    def __init__(self, dim, flip):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(nn.Linear(dim // 2, 16), nn.Tanh(), nn.Linear(16, dim))

    def forward(self, x):
        a, b = x.chunk(2, 1)
        if self.flip:
            a, b = b, a
        s, t = self.net(a).chunk(2, 1)
        s = torch.tanh(s)
        b = b * torch.exp(s) + t
        return torch.cat([b, a] if self.flip else [a, b], 1), s.sum(1)


class Flow(nn.Module):
    def __init__(self, dim=6):
        super().__init__()
        self.log_scale = nn.Parameter(torch.randn(dim) * 0.3)
        self.shift = nn.Parameter(torch.randn(dim) * 0.3)
        self.steps = nn.ModuleList(Coupling(dim, k % 2 == 1) for k in range(4))

    def log_prob(self, x):
        z = (x - self.shift) * self.log_scale.exp()
        logdet = self.log_scale.sum()
        for step in self.steps:
            z, ld = step(z)
            logdet = logdet + ld
        return logdet - 0.5 * (z.pow(2) + math.log(2 * math.pi)).sum(1)


flow = Flow()
for step in flow.steps:
    nn.init.normal_(step.net[2].weight, std=0.2)
torch.save(flow.state_dict(), sys.argv[1])
flow.eval()

g = torch.Generator().manual_seed(127)
losses = []
with torch.inference_mode():
    for b in range(4):
        x = torch.randn(20, 6, generator=g)
        losses.append(flow.log_prob(x).mean().item())
        print(f"batch {b}: log-likelihood {losses[-1]:.4f}")
print(losses)
