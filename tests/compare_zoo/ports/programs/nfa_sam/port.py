# SPDX-License-Identifier: Apache-2.0
"""SAM + AdamW on one flat parameter vector."""
import sys
from collections import namedtuple
import torch

torch.set_num_threads(1)
AdamState = namedtuple("AdamState", "count mu nu")
D, DEPTH = 12, 2
BLOCK = [("ln.weight", (D,)), ("ln.bias", (D,)), ("up.weight", (2 * D, D)), ("up.bias", (2 * D,)),
         ("down.weight", (D, 2 * D)), ("down.bias", (D,))]
LAYOUT = [("head.weight", (1, D)), ("head.bias", (1,))]
for i in range(DEPTH):
    LAYOUT += [(f"blocks.{i}.{n}", s) for n, s in BLOCK]
LAYOUT += [("stem.weight", (D, 7)), ("stem.bias", (D,))]
SIZES = [torch.Size(s).numel() for _, s in LAYOUT]


def ravel(sd):
    return torch.cat([sd[n].reshape(-1) for n, _ in LAYOUT])


def unravel(theta):
    return {n: t.view(s) for (n, s), t in zip(LAYOUT, theta.split(SIZES))}


def predict(theta, x):
    p = unravel(theta)
    h = torch.einsum("bi,oi->bo", x, p["stem.weight"]) + p["stem.bias"]
    for i in range(DEPTH):
        q = lambda n: p[f"blocks.{i}.{n}"]
        var, mean = torch.var_mean(h, -1, unbiased=False, keepdim=True)  # <- ln_variance
        z = (h - mean) / (var + 1e-5).sqrt() * q("ln.weight") + q("ln.bias")  # <- ln_variance
        z = torch.einsum("bi,oi->bo", z, q("up.weight")) + q("up.bias")
        z = 0.5 * z * (1 + torch.erf(z * 2 ** -0.5))
        h = h + torch.einsum("bi,oi->bo", z, q("down.weight")) + q("down.bias")
    return h @ p["head.weight"][0] + p["head.bias"]


def huber(theta, x, y, delta=0.8):
    r = (predict(theta, x) - y).abs()
    small = r.clamp(max=delta)
    return (0.5 * small ** 2 + delta * (r - small)).mean()  # <- huber_scale


value_and_grad = lambda th, x, y: torch.func.grad_and_value(huber)(th, x, y)[::-1]


def adamw(g, st, theta, lr=3e-3, b1=0.9, b2=0.95, eps=1e-6, wd=0.05):
    n = st.count + 1
    mu = b1 * st.mu + (1 - b1) * g
    nu = b2 * st.nu + (1 - b2) * g.square()
    direction = (mu / (1 - b1 ** n)) / ((nu / (1 - b2 ** n)).sqrt() + eps)
    return theta - lr * (direction + wd * theta), AdamState(n, mu, nu)  # <- weight_decay


def sam_step(theta, st, x, y, rho=0.1):
    value, g = value_and_grad(theta, x, y)
    _, g_up = value_and_grad(theta + rho * g / torch.linalg.vector_norm(g), x, y)
    theta, st = adamw(g_up, st, theta)  # <- no_restore
    return theta, st, value


theta = ravel(torch.load(sys.argv[1], weights_only=True))
state = AdamState(0, torch.zeros_like(theta), torch.zeros_like(theta))
gen = torch.Generator().manual_seed(3)
X = torch.randn(32, 7, generator=gen)
Y = X[:, 0] * X[:, 1] + X[:, 2].sin() + 0.1 * torch.randn(32, generator=gen)

losses, tail = [], []
for step in range(5):
    pick = torch.randperm(32, generator=gen)[:16]
    theta, state, value = sam_step(theta, state, X[pick], Y[pick])
    losses.append(value.item())
    if step > 1:  # <- tail_start
        tail.append(theta)  # <- tail_start

losses[-1] += huber(torch.stack(tail).mean(0), X, Y).item()  # <- tail_start
print(losses)
