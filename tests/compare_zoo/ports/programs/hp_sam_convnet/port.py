# SPDX-License-Identifier: Apache-2.0
"""SAM, functional: parameters in a dictionary, patches times matrices, torch.func, never an in-place climb."""
import sys

import torch
from torch.func import grad_and_value

torch.set_num_threads(1)
WEIGHT_DECAY, MOMENTUM, RHO, LR, SMOOTH = 1e-3, 0.9, 0.1, 0.1, 0.1


def load(path):
    """Convolution kernels become (kh*kw*in, out) matrices; everything is channels-last here."""
    sd = torch.load(path)
    flat = lambda w: w.permute(2, 3, 1, 0).reshape(-1, w.shape[0]).contiguous()
    return {
        "stem": {"k": flat(sd["conv1.weight"]), "b": sd["conv1.bias"],
                 "gamma": sd["norm1.weight"], "beta": sd["norm1.bias"]},
        "down": {"k": flat(sd["conv2.weight"]), "gamma": sd["norm2.weight"], "beta": sd["norm2.bias"]},
        "mix": {"k": flat(sd["conv3.weight"]), "b": sd["conv3.bias"]},
        "out": {"k": sd["head.weight"].t().contiguous(), "b": sd["head.bias"]},
    }


def tree(fn, *trees):
    if isinstance(trees[0], dict):
        return {k: tree(fn, *(t[k] for t in trees)) for k in trees[0]}
    return fn(*trees)


def leaves(t):
    return [x for v in t.values() for x in leaves(v)] if isinstance(t, dict) else [t]


def conv3x3(x, kernel, stride=1):
    n, h, w, c = x.shape
    padded = torch.nn.functional.pad(x, (0, 0, 1, 1, 1, 1))
    ho, wo = (h - 1) // stride + 1, (w - 1) // stride + 1
    shifts = [padded[:, i:i + stride * (ho - 1) + 1:stride, j:j + stride * (wo - 1) + 1:stride]
              for i in range(3) for j in range(3)]
    return torch.cat(shifts, -1) @ kernel


def group_norm(x, groups, gamma, beta):
    n, h, w, c = x.shape
    g = x.reshape(n, h * w, groups, c // groups)
    mu = g.mean((1, 3), keepdim=True)
    var = ((g - mu) ** 2).mean((1, 3), keepdim=True)
    return ((g - mu) * torch.rsqrt(var + 1e-5)).reshape(n, h, w, c) * gamma + beta


def apply(p, x):
    s, d = p["stem"], p["down"]
    x = group_norm(conv3x3(x, s["k"]) + s["b"], 2, s["gamma"], s["beta"]).clamp(min=0)
    n, h, w, c = x.shape
    x = x.reshape(n, h // 2, 2, w // 2, 2, c).mean((2, 4))
    x = group_norm(conv3x3(x, d["k"], 2), 4, d["gamma"], d["beta"]).clamp(min=0)
    x = x + (x @ p["mix"]["k"] + p["mix"]["b"]).tanh()
    return x.flatten(1, 2).mean(1) @ p["out"]["k"] + p["out"]["b"]


def objective(p, x, target):
    return -(target * apply(p, x).log_softmax(-1)).sum(-1).mean()


def dataset():
    gen = torch.Generator().manual_seed(12)
    images = torch.randn(40, 3, 12, 12, generator=gen).permute(0, 2, 3, 1).contiguous()
    labels = torch.randint(0, 5, (40,), generator=gen)
    soft = torch.eye(5)[labels] * (1 - SMOOTH) + SMOOTH / 5
    yield from zip(images.split(8), soft.split(8))


params = load(sys.argv[1])
velocity = tree(torch.zeros_like, params)
ascend = grad_and_value(objective)
losses, sharpness = [], []
for x, target in dataset():
    grads, value = ascend(params, x, target)
    size = torch.cat([g.reshape(-1) for g in leaves(grads)]).norm()
    worst = tree(lambda p, g: p + (RHO / (size + 1e-12)) * g, params, grads)
    grads, peak = ascend(worst, x, target)
    velocity = tree(lambda v, g, p: MOMENTUM * v + (g + WEIGHT_DECAY * p), velocity, grads, params)
    params = tree(lambda p, v: p - LR * v, params, velocity)
    losses.append(value.item())
    sharpness.append((peak - value).item())
print(losses)
