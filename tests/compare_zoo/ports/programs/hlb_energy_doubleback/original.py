# SPDX-License-Identifier: Apache-2.0
"""Energy network fitted to energies, forces and curvature v'Hv by double and triple backward."""
import sys

import torch
from torch import nn


class Energy(nn.Module):
    def __init__(self, dim=5, hidden=18):
        super().__init__()
        self.l1 = nn.Linear(dim, hidden)
        self.l2 = nn.Linear(hidden, hidden)
        self.l3 = nn.Linear(hidden, 1, bias=False)
        self.offset = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        h = nn.functional.softplus(self.l1(x))
        h = h + torch.tanh(self.l2(h))
        return self.l3(h).squeeze(-1) + self.offset


def truth(x):
    e = torch.sin(x).sum(-1) + 0.1 * x.pow(2).sum(-1)
    f = -(torch.cos(x) + 0.2 * x)
    return e, f


torch.manual_seed(0)
model = Energy()
torch.save(model.state_dict(), sys.argv[1])
opt = torch.optim.NAdam(model.parameters(), lr=4e-3)  # <- warm_momentum
gen = torch.Generator().manual_seed(8)

losses = []
for step in range(5):
    x = torch.randn(20, 5, generator=gen)
    v = torch.randn(20, 5, generator=gen)
    v = v / v.norm(dim=1, keepdim=True)  # <- probe_axis
    e_ref, f_ref = truth(x)

    x.requires_grad_(True)
    e = model(x)
    dedx = torch.autograd.grad(e.sum(), x, create_graph=True)[0]  # <- skip_slope
    hv = torch.autograd.grad((dedx * v).sum(), x, create_graph=True)[0]  # <- soft_bend
    curvature = (hv * v).sum(-1)  # <- soft_bend

    loss_e = (e - e_ref).pow(2).mean()
    loss_f = (-dedx - f_ref).pow(2).sum(-1).mean()  # <- force_mean
    loss_c = curvature.pow(2).mean()
    loss = loss_e + 0.5 * loss_f + 0.1 * loss_c

    opt.zero_grad()
    loss.backward()
    opt.step()  # <- warm_momentum
    losses.append(loss.item())

print(losses)
