# SPDX-License-Identifier: Apache-2.0
"""1-d Fourier neural operator for a Burgers-like surrogate; in-house AdaBelief, cosine schedule."""

import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)
GRID, WIDTH, MODES, STEPS = 32, 6, 7, 5


class SpectralConv1d(nn.Module):
    def __init__(self, cin, cout, modes):
        super().__init__()
        self.modes, self.cout = modes, cout
        scale = 1.0 / cin
        self.weights = nn.Parameter(scale * torch.rand(cin, cout, modes, dtype=torch.cfloat))

    def forward(self, x):
        xf = torch.fft.rfft(x)
        of = torch.zeros(x.size(0), self.cout, x.size(-1) // 2 + 1, dtype=torch.cfloat)
        kept = xf[:, :, : self.modes]  # <- mode_count
        of[:, :, : self.modes] = torch.einsum("bix,iox->box", kept, self.weights)  # <- mode_count
        return torch.fft.irfft(of, n=x.size(-1))  # <- one_sided


class FNO1d(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift = nn.Linear(2, WIDTH)
        self.spectral = nn.ModuleList([SpectralConv1d(WIDTH, WIDTH, MODES) for _ in range(3)])
        self.local = nn.ModuleList([nn.Conv1d(WIDTH, WIDTH, 1) for _ in range(3)])
        self.proj1 = nn.Linear(WIDTH, 16)
        self.proj2 = nn.Linear(16, 1)
        for layer in (self.lift, self.proj1, self.proj2):
            nn.init.normal_(layer.weight, std=1.5 / layer.in_features**0.5)

    def forward(self, a):
        n = a.size(1)
        coord = torch.linspace(0, 1, n + 1)[:-1].expand(a.size(0), n)  # <- coordinate_ends
        x = self.lift(torch.stack([a, coord], -1)).permute(0, 2, 1)  # <- coordinate_ends
        for k, (spec, loc) in enumerate(zip(self.spectral, self.local)):
            x = spec(x) + loc(x)
            if k < 2:
                x = F.gelu(x)
        x = x.permute(0, 2, 1)
        return self.proj2(F.gelu(self.proj1(x))).squeeze(-1)


class RelLpLoss:
    def __call__(self, pred, true):
        diff = torch.norm(pred - true, p=2, dim=1)  # <- relative_reduction
        return torch.mean(diff / torch.norm(true, p=2, dim=1))  # <- relative_reduction


class AdaBelief:
    def __init__(self, params, lr, betas=(0.9, 0.99), eps=1e-6):
        self.params, self.lr, self.betas, self.eps = list(params), lr, betas, eps
        self.state = [(torch.zeros_like(p), torch.zeros_like(p)) for p in self.params]
        self.t = 0

    @torch.no_grad()
    def step(self):
        self.t += 1
        b1, b2 = self.betas
        for p, (m, s) in zip(self.params, self.state):
            g = torch.view_as_real(p.grad) if p.is_complex() else p.grad
            w = torch.view_as_real(p) if p.is_complex() else p
            m, s = (torch.view_as_real(q) if q.is_complex() else q for q in (m, s))
            m.mul_(b1).add_(g, alpha=1 - b1)
            s.mul_(b2).add_((g - m) ** 2 + self.eps, alpha=1 - b2)  # <- belief
            den = (s / (1 - b2**self.t)).sqrt().add_(1e-4)  # <- belief
            w.sub_(self.lr / (1 - b1**self.t) * m / den)  # <- belief

    def zero_grad(self):
        for p in self.params:
            p.grad = None


def sample(gen, batch=6):
    amp = torch.randn(batch, 5, generator=gen)
    x = torch.arange(GRID) / GRID
    k = torch.arange(1, 6)
    a = (amp[:, :, None] * torch.sin(2 * math.pi * k[:, None] * x + amp[:, :1, None])).sum(1)
    return a, a.roll(3, 1) * 0.7 + 0.2 * a**2


fno = FNO1d()
torch.save(fno.state_dict(), sys.argv[1])
gen = torch.Generator().manual_seed(8)
opt, criterion = AdaBelief(fno.parameters(), lr=0.02), RelLpLoss()
losses = []
for it in range(STEPS):
    opt.lr = 0.01 * (1 + math.cos(math.pi * it / STEPS))
    a, u = sample(gen)
    loss = criterion(fno(a), u)
    opt.zero_grad()
    loss.backward()
    opt.step()  # <- belief
    losses.append(loss.item())
print(losses)
