# SPDX-License-Identifier: Apache-2.0
"""A sinusoidal network that solves Burgers' equation from its residual, as in the papers on
physics-informed networks: derivatives by differentiating the network twice.
"""

import math
import sys

import torch
from torch import nn

NU, W0, HIDDEN = 0.05, 2.0, 12


class Sine(nn.Module):
    def __init__(self, w0):
        super().__init__()
        self.w0 = w0

    def forward(self, x):
        return torch.sin(self.w0 * x)  # <- curvature frequency


class SineLayer(nn.Module):
    def __init__(self, n_in, n_out, w0, is_first=False):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        bound = 1 / n_in if is_first else math.sqrt(6 / n_in) / w0
        nn.init.uniform_(self.linear.weight, -bound, bound)
        self.activation = Sine(w0)

    def forward(self, x):
        return self.activation(self.linear(x))  # <- frequency curvature


class PINN(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            SineLayer(2, HIDDEN, W0, is_first=True),
            SineLayer(HIDDEN, HIDDEN, W0),
            SineLayer(HIDDEN, HIDDEN, 1.0),  # <- frequency
            nn.Linear(HIDDEN, 1),
        )

    def forward(self, x, t):
        return self.net(torch.cat([x, t], dim=1))

    def residual(self, x, t):
        x.requires_grad_(True)
        t.requires_grad_(True)
        u = self.forward(x, t)
        ones = torch.ones_like(u)
        u_t = torch.autograd.grad(u, t, ones, create_graph=True)[0]
        u_x = torch.autograd.grad(u, x, ones, create_graph=True)[0]
        u_xx = torch.autograd.grad(u_x, x, ones, create_graph=True)[0]  # <- curvature
        return u_t + u * u_x - NU * u_xx  # <- viscosity curvature advected


torch.manual_seed(31)
model = PINN()
torch.save(model.state_dict(), sys.argv[1])
gen = torch.Generator().manual_seed(32)
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
mse = nn.MSELoss()
losses = []
for epoch in range(5):
    x_f = 2 * torch.rand(40, 1, generator=gen) - 1
    t_f = torch.rand(40, 1, generator=gen)
    x_0 = 2 * torch.rand(16, 1, generator=gen) - 1
    t_b = torch.rand(10, 1, generator=gen)
    f = model.residual(x_f, t_f)  # <- advected
    loss_f = mse(f, torch.zeros_like(f))
    u_0 = model(x_0, torch.zeros_like(x_0))
    loss_0 = mse(u_0, -torch.sin(math.pi * x_0))  # <- shape
    left = model(-torch.ones_like(t_b), t_b)
    right = model(torch.ones_like(t_b), t_b)
    loss_b = (left**2 + right**2).mean()  # <- walls
    loss = loss_f + 10 * loss_0 + loss_b  # <- walls
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
