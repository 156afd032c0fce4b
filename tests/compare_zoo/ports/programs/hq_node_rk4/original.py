# SPDX-License-Identifier: Apache-2.0
"""Neural ODE classifier on spirals: fixed-step RK4 solved inside autograd."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(61)


class ConcatLinear(nn.Module):
    """Linear layer over the state with the time appended as one more feature."""

    def __init__(self, dim_in, dim_out):
        super().__init__()
        self.layer = nn.Linear(dim_in + 1, dim_out)

    def forward(self, t, x):
        tt = torch.ones_like(x[:, :1]) * t
        return self.layer(torch.cat([tt, x], dim=1))


class ODEFunc(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.l1 = ConcatLinear(dim, hidden)
        self.l2 = ConcatLinear(hidden, hidden)
        self.l3 = ConcatLinear(hidden, dim)

    def forward(self, t, x):
        h = F.softplus(self.l1(t, x))
        h = torch.tanh(self.l2(t, h))
        return self.l3(t, h)


def odeint_rk4(func, x, t0, t1, steps):
    h = (t1 - t0) / steps
    energy = torch.zeros(x.shape[0])
    for i in range(steps):
        t = t0 + i * h
        k1 = func(t, x)
        k2 = func(t + h / 2, x + h / 2 * k1)
        k3 = func(t + h / 2, x + h / 2 * k2)
        k4 = func(t + h, x + h * k3)
        x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        energy = energy + h / 6 * (k1.pow(2).sum(1) + 2 * k2.pow(2).sum(1) + 2 * k3.pow(2).sum(1) + k4.pow(2).sum(1))
    return x, energy


class NeuralODE(nn.Module):
    def __init__(self, dim=5, hidden=16, classes=3):
        super().__init__()
        self.lift = nn.Linear(2, dim)
        self.func = ODEFunc(dim, hidden)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        z, energy = odeint_rk4(self.func, self.lift(x), 0.0, 1.0, 4)
        return self.head(z), energy


def spiral(n, gen):
    label = torch.randint(0, 3, (n,), generator=gen)
    r = torch.rand(n, generator=gen)
    th = 4 * r + 2.0944 * label + 0.2 * torch.randn(n, generator=gen)
    return torch.stack([r * th.cos(), r * th.sin()], dim=1), label


model = NeuralODE()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, nesterov=True, weight_decay=1e-3)
gen = torch.Generator().manual_seed(610)
losses = []
for step in range(6):
    x, y = spiral(15, gen)
    logits, energy = model(x)
    loss = F.cross_entropy(logits, y, label_smoothing=0.1) + 0.05 * energy.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(losses)
