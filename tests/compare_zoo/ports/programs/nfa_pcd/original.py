# SPDX-License-Identifier: Apache-2.0
"""Energy model trained by persistent contrastive divergence with short Langevin chains."""
import sys

import torch
import torch.nn as nn

torch.set_num_threads(1)
CHAINS, DIM = 12, 3


class Energy(nn.Module):
    def __init__(self, h=16):
        super().__init__()
        self.embed = nn.Linear(DIM, h)
        self.mix = nn.Bilinear(h, h, 6)
        self.out = nn.Linear(6, 1, bias=False)
        self.log_precision = nn.Parameter(torch.full((DIM,), -1.0))

    def forward(self, x):
        h = torch.tanh(self.embed(x))
        quad = 0.5 * (self.log_precision.exp() * x * x).sum(1)  # <- raw_precision
        return self.out(nn.functional.softplus(self.mix(h, h)))[:, 0] + quad


class ReplayBuffer:
    def __init__(self, gen):
        self.samples = torch.randn(CHAINS * 2, DIM, generator=gen)

    def draw(self, gen):
        self.idx = torch.randperm(CHAINS * 2, generator=gen)[:CHAINS]
        return self.samples[self.idx]  # <- pool_stale

    def put(self, x):
        self.samples[self.idx] = x  # <- pool_stale


def langevin(energy, x, gen, steps=4, size=0.05):
    for _ in range(steps):
        x = x.detach().requires_grad_(True)
        (g,) = torch.autograd.grad(energy(x).sum(), x)
        g = g.clamp(-1.0, 1.0)
        x = (x - size * g  # <- noise_scale
             + (2 * size) ** 0.5 * 0.3 * torch.randn(x.shape, generator=gen))  # <- noise_scale
    return x.detach()


torch.manual_seed(0)
model = Energy()
torch.save(model.state_dict(), sys.argv[1])
slow = ["log_precision"]
opt = torch.optim.SGD([
    {"params": [p for n, p in model.named_parameters() if n not in slow],
     "lr": 0.05, "momentum": 0.9},
    {"params": [model.log_precision], "lr": 0.02, "momentum": 0.0},
])

gen = torch.Generator().manual_seed(44)
buffer = ReplayBuffer(gen)
losses = []
for step in range(5):
    pos = torch.randn(CHAINS, DIM, generator=gen) * torch.tensor([1.0, 0.5, 0.2]) + 0.5
    neg = langevin(model, buffer.draw(gen), gen)
    buffer.put(neg)  # <- pool_stale
    # the precisions are touched at every second step only
    model.log_precision.requires_grad_(step % 2 == 1)  # <- prec_turn
    e_pos, e_neg = model(pos), model(neg)
    loss = (nn.functional.softplus(e_pos - e_neg).mean()  # <- penalty_factor
            + 0.1 * (e_pos.pow(2) + e_neg.pow(2)).mean())  # <- penalty_factor
    opt.zero_grad()
    loss.backward()
    opt.step()  # <- prec_turn
    losses.append(loss.item())
    model.log_precision.requires_grad_(True)

print(losses)
