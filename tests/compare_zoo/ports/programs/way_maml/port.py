# SPDX-License-Identifier: Apache-2.0
"""MAML with torch.func: the learner is a pure function, tasks are mapped over, the outer gradient
is taken of it all; images are unfolded and the norm is written out.
"""

import functools
import math
import sys

import torch
import torch.nn.functional as F
from torch.func import grad, grad_and_value, vmap

N_WAY, K_SHOT, N_QUERY, N_TASKS, ROUNDS = 3, 2, 3, 2, 4
META_RATE, META_FLOOR = 0.02, 1e-3


def normed(x, gain, shift, eps=1e-5):
    """Over examples and places of (examples, channels, places)."""
    mean = x.mean((0, 2), keepdim=True)
    spread = (x - mean).square().mean((0, 2), keepdim=True)
    return (x - mean) * torch.rsqrt(spread + eps) * gain[:, None] + shift[:, None]  # <- norm_eps


def soft(x, sharp=5.0):
    return torch.logaddexp(x * sharp, torch.zeros_like(x)) / sharp  # <- softplus


def conv(x, weight, bias, padding):
    columns = F.unfold(x, 3, padding=padding)
    return weight.flatten(1) @ columns + bias[:, None]


def learner(p, x):
    n = x.shape[0]
    y = soft(normed(conv(x, p["w1"], p["b1"], 1), p["g1"], p["s1"]))
    y = y.reshape(n, -1, 4, 2, 4, 2).mean((3, 5))
    y = soft(normed(conv(y, p["w2"], p["b2"], 0), p["g2"], p["s2"]))  # <- softplus
    return y.reshape(n, -1) @ p["w3"].mT + p["b3"]


def entropy(p, x, y):
    scores = learner(p, x)
    return -(scores.log_softmax(-1) * (y[:, None] == torch.arange(N_WAY))).sum(-1).mean()


def one_task(p, rates, sx, sy, qx, qy):
    fast, seen = p, []
    for _ in range(2):
        slope = grad(entropy)(fast, sx, sy)  # <- first_order
        fast = {k: fast[k] - rates[k] * slope[k] for k in fast}  # <- stale_start first_order
        seen.append(entropy(fast, qx, qy))
    return 0.3 * seen[0] + 0.7 * seen[1]  # <- last_only


def meta_loss(meta, tasks):
    p, rates = meta
    run = functools.partial(one_task, p, rates)
    return vmap(run)(*tasks).mean()


def drawn(rng):
    places = torch.rand(N_WAY, 2, generator=rng) * 6
    y = torch.arange(N_WAY).repeat(K_SHOT + N_QUERY)
    at = places[y] + torch.randn(len(y), 2, generator=rng) * 0.5
    axis = torch.arange(8.0)
    rows = (axis - at[:, :1]).square()[:, :, None]
    columns = (axis - at[:, 1:]).square()[:, None, :]
    x = torch.exp((rows + columns) / -3)[:, None]
    cut = N_WAY * K_SHOT
    return x[:cut], y[:cut], x[cut:], y[cut:]


NAMES = {
    "w1": "features.conv1.weight",
    "b1": "features.conv1.bias",
    "g1": "features.bn1.weight",
    "s1": "features.bn1.bias",
    "w2": "features.conv2.weight",
    "b2": "features.conv2.bias",
    "g2": "features.bn2.weight",
    "s2": "features.bn2.bias",
    "w3": "classifier.weight",
    "b3": "classifier.bias",
}
saved = torch.load(sys.argv[1])
meta = (
    {k: saved["net"][name] for k, name in NAMES.items()},
    {k: saved["lrs"][name.replace(".", "_")] for k, name in NAMES.items()},
)
first = [{k: torch.zeros_like(v) for k, v in part.items()} for part in meta]
second = [{k: torch.zeros_like(v) for k, v in part.items()} for part in meta]
rng = torch.Generator().manual_seed(72)
losses = []
for r in range(ROUNDS):
    batch = [torch.stack(field) for field in zip(*[drawn(rng) for _ in range(N_TASKS)])]
    gradient, loss = grad_and_value(meta_loss)(meta, batch)  # <- first_order
    losses.append(loss.item())
    swing = math.cos(math.pi * r / ROUNDS)  # <- cosine
    rate = META_FLOOR + (META_RATE - META_FLOOR) * (1 + swing) / 2  # <- cosine
    for part, grads, m, v in zip(meta, gradient, first, second):
        for k, g in grads.items():
            m[k] = 0.9 * m[k] + 0.1 * g
            v[k] = 0.999 * v[k] + 0.001 * g * g
            up, down = m[k] / (1 - 0.9 ** (r + 1)), v[k] / (1 - 0.999 ** (r + 1))
            part[k] = part[k] - rate * up / (down.sqrt() + 1e-8)  # <- cosine
