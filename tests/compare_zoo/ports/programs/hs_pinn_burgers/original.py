# SPDX-License-Identifier: Apache-2.0
"""Physics-informed network for the viscous Burgers equation, derivatives by autograd with create_graph."""
import sys

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(8)

NU, WIDTH, INSIDE, EDGE, STEPS = 0.05, 16, 24, 10, 6


class PINN(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("lower", torch.tensor([-1.0, 0.0]))
        self.register_buffer("upper", torch.tensor([1.0, 1.0]))
        self.net = nn.Sequential(nn.Linear(2, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(),
                                 nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))
        for layer in self.net:
            if isinstance(layer, nn.Linear):
                nn.init.xavier_normal_(layer.weight)
        self.log_nu = nn.Parameter(torch.tensor(NU).log() + 0.3)         # found along with the solution

    def forward(self, x, t):
        inputs = torch.cat([x, t], 1)
        scaled = 2 * (inputs - self.lower) / (self.upper - self.lower) - 1
        return self.net(scaled)


def derivative(y, x):
    return torch.autograd.grad(y, x, grad_outputs=torch.ones_like(y), create_graph=True)[0]


def residual(model, x, t):
    x = x.clone().requires_grad_(True)
    t = t.clone().requires_grad_(True)
    u = model(x, t)
    u_x, u_t = derivative(u, x), derivative(u, t)
    u_xx = derivative(u_x, x)
    return u_t + u * u_x - model.log_nu.exp() * u_xx, u_x, derivative(u_xx, x)


model = PINN()
torch.save(model.state_dict(), sys.argv[1])

g = torch.Generator().manual_seed(16)
optimizer = torch.optim.NAdam(model.parameters(), lr=5e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.7)

losses = []
for step in range(STEPS):
    x_in = 2 * torch.rand(INSIDE, 1, generator=g) - 1
    t_in = torch.rand(INSIDE, 1, generator=g)
    x_0 = 2 * torch.rand(EDGE, 1, generator=g) - 1
    t_b = torch.rand(EDGE, 1, generator=g)

    f, u_x, u_xxx = residual(model, x_in, t_in)
    physics = (f ** 2 / (1 + 0.1 * u_x.detach().abs())).mean()           # gradient-aware weights
    smooth = 1e-4 * (u_xxx ** 2).mean()
    initial = (model(x_0, torch.zeros_like(x_0)) + torch.sin(torch.pi * x_0)).pow(2).mean()
    left, right = model(-torch.ones_like(t_b), t_b), model(torch.ones_like(t_b), t_b)
    boundary = left.pow(2).mean() + right.pow(2).mean()
    loss = physics + smooth + 10 * initial + boundary

    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())

print(losses)
