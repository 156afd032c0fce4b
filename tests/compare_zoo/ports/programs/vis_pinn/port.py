# SPDX-License-Identifier: Apache-2.0
"""Burgers' equation with derivatives carried forward through the layers, so that the network is
differentiated only once, for its weights.
"""

import sys
from math import pi
from typing import NamedTuple

import torch


class Jet(NamedTuple):
    """A function of x and t at some points: its value and the derivatives that are needed."""

    value: torch.Tensor
    dx: torch.Tensor
    dt: torch.Tensor
    dxx: torch.Tensor


def affine(jet, weight, bias):
    stacked = torch.stack(jet) @ weight.T
    value, dx, dt, dxx = stacked.unbind(0)
    return Jet(value + bias, dx, dt, dxx)


def sine(jet, w):
    s, c = torch.sin(w * jet.value), torch.cos(w * jet.value)  # <- frequency
    wc = w * c
    bent = wc * jet.dxx - w**2 * s * jet.dx.square()  # <- curvature frequency
    return Jet(s, wc * jet.dx, wc * jet.dt, bent)


def seed(x, t):
    points = torch.stack((x, t), 1)
    along_x = torch.tensor([1.0, 0.0]).expand_as(points)
    along_t = torch.tensor([0.0, 1.0]).expand_as(points)
    return Jet(points, along_x, along_t, torch.zeros_like(points))


class Solver:
    frequencies = (2.0, 2.0, 1.0)  # <- frequency

    def __init__(self, state):
        tensors = [v.clone().requires_grad_() for v in state.values()]
        self.weights, self.biases = tensors[0::2], tensors[1::2]
        self.parameters = tensors

    def jet(self, x, t):
        out = seed(x, t)
        for i, w in enumerate(self.frequencies):
            out = sine(affine(out, self.weights[i], self.biases[i]), w)  # <- frequency curvature
        return affine(out, self.weights[-1], self.biases[-1])

    def value(self, x, t):
        h = torch.stack((x, t), 1)
        for i, w in enumerate(self.frequencies):
            h = torch.addmm(self.biases[i], h, self.weights[i].T).mul(w).sin()  # <- frequency
        return torch.addmm(self.biases[-1], h, self.weights[-1].T).squeeze(1)


def points(gen):
    """Collocation, initial and boundary points of one step."""
    x = torch.rand(40, generator=gen) * 2 - 1
    t = torch.rand(40, generator=gen)
    x0 = torch.rand(16, generator=gen) * 2 - 1
    tb = torch.rand(10, generator=gen)
    return x, t, x0, tb


def objective(solver, x, t, x0, tb, nu=0.05):  # <- viscosity
    u = solver.jet(x, t)
    momentum = u.value * u.dx  # <- advected
    wrong = u.dt + momentum - nu * u.dxx  # <- viscosity advected curvature
    n = len(tb)
    times = torch.cat([torch.zeros_like(x0), tb, tb])
    edge = torch.ones_like(tb)
    known = solver.value(torch.cat([x0, -edge, edge]), times)
    start, walls = known[: len(x0)], known[len(x0) :]
    initial = (start + torch.sin(pi * x0)).square().mean()  # <- shape
    boundary = walls.square().sum() / n  # <- walls
    return wrong.square().mean() + 10 * initial + boundary  # <- walls


solver = Solver(torch.load(sys.argv[1]))
adam = torch.optim.Adam(solver.parameters, lr=2e-3, foreach=False)
gen = torch.Generator().manual_seed(32)
losses = []
for _ in range(5):
    loss = objective(solver, *points(gen))
    for p, g in zip(solver.parameters, torch.autograd.grad(loss, solver.parameters)):
        p.grad = g
    adam.step()
    losses.append(loss.item())
