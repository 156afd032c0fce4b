# SPDX-License-Identifier: Apache-2.0
"""RealNVP/Glow-style flow on 6-d data: actnorm, invertible linear map, masked affine coupling."""
import math
import sys

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(17)
D = 6


class ActNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.log_scale = nn.Parameter(0.1 * torch.randn(dim))
        self.shift = nn.Parameter(0.1 * torch.randn(dim))

    def forward(self, x):
        return (x + self.shift) * torch.exp(self.log_scale), self.log_scale.sum().expand(x.shape[0])


class InvertibleLinear(nn.Module):
    def __init__(self, dim):
        super().__init__()
        q, _ = torch.linalg.qr(torch.randn(dim, dim))
        self.weight = nn.Parameter(q)

    def forward(self, x):
        return x @ self.weight.t(), torch.slogdet(self.weight)[1].expand(x.shape[0])


class AffineCoupling(nn.Module):
    def __init__(self, mask, hidden=24):
        super().__init__()
        dim = mask.numel()
        self.register_buffer("mask", mask)
        self.scale_net = nn.Sequential(nn.Linear(dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(),
                                       nn.Linear(hidden, dim), nn.Tanh())
        self.translate_net = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                                           nn.Linear(hidden, dim))
        self.rescale = nn.Parameter(torch.full((dim,), 0.7))

    def forward(self, x):
        masked = x * self.mask
        s = self.rescale * self.scale_net(masked) * (1 - self.mask)
        t = self.translate_net(masked) * (1 - self.mask)
        return masked + (1 - self.mask) * (x * torch.exp(s) + t), s.sum(dim=1)


class Flow(nn.Module):
    def __init__(self, blocks=3):
        super().__init__()
        layers = []
        for i in range(blocks):
            mask = torch.tensor([(j + i) % 2 for j in range(D)], dtype=torch.float32)
            layers += [ActNorm(D), InvertibleLinear(D), AffineCoupling(mask)]
        self.layers = nn.ModuleList(layers)
        self.register_buffer("loc", torch.zeros(D))
        self.register_buffer("scale", torch.ones(D))

    def log_prob(self, x):
        logdet = torch.zeros(x.shape[0])
        for layer in self.layers:
            x, ld = layer(x)
            logdet = logdet + ld
        prior = torch.distributions.Independent(torch.distributions.Normal(self.loc, self.scale), 1)
        return prior.log_prob(x) + logdet


def make_batch(gen, n=16):
    r = torch.randn(n, D, generator=gen)
    return torch.stack([r[:, 0], r[:, 0] ** 2 * 0.5 + 0.3 * r[:, 1], torch.sin(r[:, 2]), r[:, 3] + 0.5 * r[:, 2],
                        0.7 * r[:, 4], r[:, 5] * 0.5 - r[:, 0]], dim=1)


flow = Flow()
torch.save(flow.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(flow.parameters(), lr=1e-3, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
gen = torch.Generator().manual_seed(170)
losses = []
for step in range(6):
    x = make_batch(gen)
    loss = -flow.log_prob(x).mean() / (D * math.log(2))     # bits per dimension
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())
print(losses)
