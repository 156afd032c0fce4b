# SPDX-License-Identifier: Apache-2.0
"""Meta-learning with everything written out: all tasks side by side, inner gradients by hand, bmm weights."""
import math
import sys

import torch

torch.set_num_threads(1)

TASKS, K = 4, 6
EPS = 1e-5
KEYS = ["w1", "b1", "gamma", "beta", "w2", "b2", "w3", "b3"]
OLD = ["0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias", "5.weight", "5.bias"]


def load(path):
    sd = torch.load(path)
    weights = {}
    for k, o in zip(KEYS, OLD):
        w = sd["learner.net." + o]
        weights[k] = w.t().clone() if w.ndim == 2 else w.view(1, -1).clone()     # everything two-dimensional
    rates = torch.stack([sd["inner_lr.net_" + o.replace(".", "_")] for o in OLD])  # one vector of eight rates
    return weights, rates


def forward(p, x):
    """p[k]: (tasks, i, o); x: (tasks, k, 1). Returns prediction and the tape for the manual backward."""
    a1 = x * p["w1"] + p["b1"]
    mu = a1.mean(-1, keepdim=True)
    c = a1 - mu
    inv = torch.rsqrt((c * c).mean(-1, keepdim=True) + EPS)
    n = c * inv
    h1 = torch.tanh(n * p["gamma"] + p["beta"])
    h2 = torch.tanh(torch.baddbmm(p["b2"], h1, p["w2"]))
    out = torch.baddbmm(p["b3"], h2, p["w3"])
    return out, (n, inv, h1, h2)


def manual_grad(p, x, y):
    """Gradient of every task's mean squared error, out of differentiable operations."""
    out, (n, inv, h1, h2) = forward(p, x)
    d3 = 2 * (out - y) / K
    d2 = (d3 @ p["w3"].mT) * (1 - h2 * h2)
    d1 = (d2 @ p["w2"].mT) * (1 - h1 * h1)
    dn = d1 * p["gamma"]
    da = inv * (dn - dn.mean(-1, keepdim=True) - n * (dn * n).mean(-1, keepdim=True))
    return {
        "w3": h2.mT @ d3, "b3": d3.sum(1, keepdim=True),
        "w2": h1.mT @ d2, "b2": d2.sum(1, keepdim=True),
        "gamma": (d1 * n).sum(1, keepdim=True), "beta": d1.sum(1, keepdim=True),
        "w1": x.mT @ da, "b1": da.sum(1, keepdim=True),
    }


def meta_objective(weights, rates, batch):
    xs, ys, xq, yq = batch
    fast = {k: w.unsqueeze(0).expand(TASKS, *w.shape) for k, w in weights.items()}
    for _ in range(2):
        g = manual_grad(fast, xs, ys)
        fast = {k: torch.sub(fast[k], rates[i] * g[k]) for i, k in enumerate(KEYS)}
    pred, _ = forward(fast, xq)
    per_task = (pred - yq).square().mean((1, 2))
    return per_task


def episodes(n):
    rng = torch.Generator().manual_seed(410)

    def one():
        u = [torch.rand(s, generator=rng) for s in ((1,), (1,), (K, 1), (K, 1))]
        a, ph = 0.5 + 2 * u[0], math.pi * u[1]
        s, q = 6 * u[2] - 3, 6 * u[3] - 3
        return s, a * (s + ph).sin(), q, a * (q + ph).sin()

    return [tuple(torch.stack(z) for z in zip(*(one() for _ in range(TASKS)))) for _ in range(n)]


weights, rates = load(sys.argv[1])
for t in (*weights.values(), rates):
    t.requires_grad_(True)
meta = torch.optim.Adam([{"params": [rates], "lr": 1e-3}, {"params": list(weights.values()), "lr": 1e-3}])
losses, before, spread = [], [], []
for batch in episodes(5):
    with torch.no_grad():            # how bad is the unadapted learner: only for the record
        p0 = {k: w.expand(TASKS, -1, -1) for k, w in weights.items()}
        before.append((forward(p0, batch[2])[0] - batch[3]).square().mean().item())
    meta.zero_grad(set_to_none=False)
    per_task = meta_objective(weights, rates, batch)
    per_task.backward(torch.full((TASKS,), 1 / TASKS))
    meta.step()
    spread.append(per_task.detach().std().item())
    losses.append(per_task.mean().item())
print(losses)
