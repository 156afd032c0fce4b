# SPDX-License-Identifier: Apache-2.0
"""Bootstrap your own latent, functional: parameter dicts, lerp target, views in one convolution."""

import sys
from math import cos, pi

import torch
from torch import nn

NAMES = {"c1": "0.0", "c2": "0.2", "fc1": "1.net.0", "bn": "1.net.1", "fc2": "1.net.3"}


def pull(blob, head):
    found = {}
    for short, long in NAMES.items():
        for kind in ("weight", "bias"):
            key = f"{head}.{long}.{kind}"
            if key in blob:
                found[f"{short}.{kind}"] = blob[key].clone()
    return found


blob = torch.load(sys.argv[1], weights_only=True)
student, teacher = pull(blob, "online"), pull(blob, "target")
NAMES = {"fc1": "net.0", "bn": "net.1", "fc2": "net.3"}
guess = pull(blob, "predictor")
for value in [*student.values(), *guess.values()]:
    value.requires_grad_()


def mlp(p, x):
    x = x @ p["fc1.weight"].T
    centred = x - x.mean(0)
    x = centred * torch.rsqrt(centred.pow(2).mean(0) + 1e-5)
    x = (x * p["bn.weight"] + p["bn.bias"]).clamp(min=0)
    return x @ p["fc2.weight"].T + p["fc2.bias"]


def embed(p, a, b):
    """convolutions see both views as one batch; the normalised head sees each alone"""
    x = torch.cat([a, b])
    for layer in ("c1", "c2"):
        x = nn.functional.conv2d(x, p[layer + ".weight"], p[layer + ".bias"], 2, 1).relu()
    return [mlp(p, half) for half in x.mean((2, 3)).chunk(2)]


def distance(u, v):
    u = u / u.norm(dim=1, keepdim=True)  # <- cosine
    v = v / v.norm(dim=1, keepdim=True)  # <- cosine
    return (u - v).square().sum(1)  # <- cosine


def byol_loss(a, b):
    za, zb = embed(student, a, b)
    with torch.no_grad():
        ta, tb = embed(teacher, a, b)  # <- stale
    qa, qb = mlp(guess, za), mlp(guess, zb)  # <- predictor
    return distance(qa, tb).mean() + distance(qb, ta).mean()  # <- predictor


learned = [(k, v) for part in (student, guess) for k, v in part.items()]
moment = [None] * len(learned)


@torch.no_grad()
def sgd(lr=0.3, mu=0.9):
    for i, (name, w) in enumerate(learned):
        grad = w.grad
        if name.endswith("weight") and not name.startswith("bn"):  # <- groups
            grad = grad + 0.05 * w  # <- groups
        moment[i] = grad.clone() if moment[i] is None else moment[i] * mu + grad
        w -= lr * moment[i]
        w.grad = None


@torch.no_grad()
def follow(step, tau=0.8, last=6):
    pull_in = (1 - tau) * (cos(pi * step / last) + 1) / 2  # <- ramp
    for name, slow in teacher.items():
        slow.lerp_(student[name], pull_in)  # <- ramp stale


rand = torch.Generator().manual_seed(31)
losses = []
for step in range(5):
    clean = torch.randn(8, 2, 12, 12, generator=rand)
    rough = clean + 0.3 * torch.randn(8, 2, 12, 12, generator=rand)
    loss = byol_loss(rough, torch.flip(clean, (3,)))
    loss.backward()
    sgd()  # <- groups
    follow(step)  # <- ramp stale
    losses.append(loss.item())
print(losses)
