# SPDX-License-Identifier: Apache-2.0
"""Deep ensemble: five networks, each with own optimizer, rate and bootstrap, in a loop."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

MEMBERS = 5


class Member(nn.Module):
    """Heteroscedastic regressor: mean and log variance."""

    def __init__(self, d=6, h=16):
        super().__init__()
        self.fc1 = nn.Linear(d, h)
        self.norm = nn.LayerNorm(h)
        self.fc2 = nn.Linear(h, h)
        self.mean = nn.Linear(h, 1)
        self.logvar = nn.Linear(h, 1)

    def forward(self, x):
        h = F.silu(self.norm(self.fc1(x)))  # <- bessel
        h = F.silu(self.fc2(h))
        return self.mean(h).squeeze(-1), self.logvar(h).squeeze(-1)


def target(x, gen):
    return torch.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * torch.randn(len(x), generator=gen)


torch.manual_seed(0)
ensemble = nn.ModuleList(Member() for _ in range(MEMBERS))
torch.save(ensemble.state_dict(), sys.argv[1])
optimizers = [torch.optim.Adam(m.parameters(), lr=1e-3 * (1 + k))  # <- rate_shift
              for k, m in enumerate(ensemble)]  # <- rate_shift

gen = torch.Generator().manual_seed(23)
losses = []
for step in range(4):
    x = torch.randn(30, 6, generator=gen)
    y = target(x, gen)
    draws = torch.randint(0, 30, (MEMBERS, 30), generator=gen)
    total = 0.0
    for k, (member, opt) in enumerate(zip(ensemble, optimizers)):
        xb, yb = x[draws[k]], y[draws[k]]  # <- no_repeat
        mean, logvar = member(xb)
        loss = F.gaussian_nll_loss(mean, yb, logvar.exp(), eps=1e-12)  # <- log_std
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(member.parameters(), 1.0)  # <- pooled_clip
        opt.step()  # <- rate_shift
        total += loss.item()
    losses.append(total / MEMBERS)

print(losses)
