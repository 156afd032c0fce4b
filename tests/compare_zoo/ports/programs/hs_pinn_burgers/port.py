# SPDX-License-Identifier: Apache-2.0
"""Burgers network of single points: jacfwd and hessian under vmap, input scaling folded in, NAdam over a pytree."""
import sys
import warnings

import torch
from torch.func import grad_and_value, hessian, jacfwd, jvp, vmap
from torch.utils import _pytree as pytree

torch.set_num_threads(1)
warnings.filterwarnings("ignore", category=FutureWarning)     # torch.func loads scripted decompositions

N_IN, N_EDGE, STEPS = 24, 10, 6


def import_weights(path):
    sd = torch.load(path)
    layers = [(sd[f"net.{2 * i}.weight"].T.clone(), sd[f"net.{2 * i}.bias"].clone()) for i in range(4)]
    return {"layers": layers, "log_nu": sd["log_nu"].clone()}


def u(params, point):
    """Value at one point (x, t); the box [-1, 1] x [0, 1] is mapped onto the square."""
    h = torch.stack([point[0], 2 * point[1] - 1])
    *hidden, (w, b) = params["layers"]
    for weight, bias in hidden:
        h = torch.tanh(h @ weight + bias)
    return (h @ w + b)[0]


def point_terms(params, point):
    value, slope = u(params, point), jacfwd(u, argnums=1)(params, point)

    def curvature(p):
        return hessian(u, argnums=1)(params, p)[0, 0]

    bend, bend_x = jvp(curvature, (point,), (torch.tensor([1.0, 0.0]),))
    f = slope[1] + value * slope[0] - params["log_nu"].exp() * bend
    return f.square() / (1 + 0.1 * slope[0].detach().abs()) + 1e-4 * bend_x.square()


def objective(params, inside, edge, wanted, weight):
    equation = vmap(point_terms, (None, 0))(params, inside).mean()
    # initial and both boundary conditions are one weighted regression
    fit = vmap(u, (None, 0))(params, edge) - wanted
    return equation + (weight * fit.square()).sum()


class NAdam:
    """Nesterov Adam over a tree of tensors; returns a new tree."""

    def __init__(self, tree, b1=0.9, b2=0.999, decay=4e-3):
        self.b1, self.b2, self.decay, self.n, self.product = b1, b2, decay, 0, 1.0
        self.first = pytree.tree_map(torch.zeros_like, tree)
        self.second = pytree.tree_map(torch.zeros_like, tree)

    def mu(self, n):
        return self.b1 * (1 - 0.5 * 0.96 ** (n * self.decay))

    def __call__(self, tree, grads, lr):
        self.n += 1
        mu, following = self.mu(self.n), self.mu(self.n + 1)
        self.product *= mu
        self.first = pytree.tree_map(lambda m, g: self.b1 * m + (1 - self.b1) * g, self.first, grads)
        self.second = pytree.tree_map(lambda v, g: self.b2 * v + (1 - self.b2) * g * g, self.second, grads)

        def new(p, m, v, g):
            nose = g * (1 - mu) / (1 - self.product) + m * following / (1 - self.product * following)
            return p - lr * nose / ((v / (1 - self.b2 ** self.n)).sqrt() + 1e-8)
        return pytree.tree_map(new, tree, self.first, self.second, grads)


def collocation(seed):
    rng = torch.Generator().manual_seed(seed)
    while True:
        x, t, x0, tb = (torch.rand(n, generator=rng) for n in (N_IN, N_IN, N_EDGE, N_EDGE))
        one = torch.ones(N_EDGE)
        x0 = x0 * 2 - 1
        edge = torch.cat([torch.stack(pair, 1) for pair in ((one, tb), (x0, 0 * one), (-one, tb))])
        wanted = torch.cat([0 * one, -torch.sin(torch.pi * x0), 0 * one])
        yield torch.stack([x * 2 - 1, t], 1), edge, wanted, torch.cat([one, 10 * one, one]) / N_EDGE


params = import_weights(sys.argv[1])
update = NAdam(params)
losses, best = [], (float("inf"), None)
for step, batch in zip(range(STEPS), collocation(16)):
    grads, value = grad_and_value(objective)(params, *batch)
    if value < best[0]:
        best = value.item(), pytree.tree_map(torch.clone, params)         # best solution so far
    params = update(params, grads, 5e-3 * 0.7 ** (step // 2))
    losses.append(value.item())

print(losses)
