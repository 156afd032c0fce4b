# SPDX-License-Identifier: Apache-2.0
"""RealNVP density estimation on a two-cluster toy set, the whole flow compiled."""

import math
import sys

import torch
from torch import nn

DIM = 6


class Coupling(nn.Module):
    def __init__(self, mask, hidden=16):
        super().__init__()
        self.register_buffer("mask", mask)
        self.s = nn.Sequential(nn.Linear(DIM, hidden), nn.LeakyReLU(), nn.Linear(hidden, DIM))
        self.t = nn.Sequential(nn.Linear(DIM, hidden), nn.LeakyReLU(), nn.Linear(hidden, DIM))
        self.rescale = nn.Parameter(torch.ones(DIM) * 1.5)

    def forward(self, x):
        kept = self.mask * x
        s = torch.tanh(self.s(kept)) * self.rescale * (1 - self.mask)  # <- scale_bound
        t = self.t(kept) * (1 - self.mask)
        z = kept + (1 - self.mask) * (x * torch.exp(s) + t)  # <- coupling_order
        return z, s.sum(dim=1)


class ActNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.log_scale = nn.Parameter(torch.randn(dim) * 0.1)
        self.bias = nn.Parameter(torch.randn(dim) * 0.1)

    def forward(self, x):
        z = (x + self.bias) * torch.exp(self.log_scale)
        return z, self.log_scale.sum()  # <- actnorm_logdet


class RealNVP(nn.Module):
    def __init__(self, n_flows=4):
        super().__init__()
        base = torch.arange(DIM) % 2
        flows = []
        for i in range(n_flows):
            flows.append(ActNorm(DIM))
            flows.append(Coupling((base if i % 2 == 0 else 1 - base).float()))  # <- mask_parity
        self.flows = nn.ModuleList(flows)

    def forward(self, x):
        logdet = torch.zeros(x.shape[0])
        for flow in self.flows:
            x, ld = flow(x)  # <- mask_parity
            logdet = logdet + ld  # <- actnorm_logdet
        log_prior = -0.5 * (x**2).sum(1) - 0.5 * DIM * math.log(2 * math.pi)
        return -(log_prior + logdet).mean()


def main(path):
    torch.manual_seed(6)
    model = RealNVP()
    torch.save(model.state_dict(), path)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)

    gen = torch.Generator().manual_seed(23)
    sign = torch.randint(0, 2, (4, 32, 1), generator=gen) * 2.0 - 1.0
    batches = sign * 1.5 + 0.6 * torch.randn(4, 32, DIM, generator=gen)

    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.8, nesterov=True)  # <- lookahead
    history = []
    for x in batches:
        nll = compiled(x)
        opt.zero_grad()
        nll.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.5)
        opt.step()  # <- lookahead
        history.append(nll.item())
    return history


losses = main(sys.argv[1])
print(losses)
