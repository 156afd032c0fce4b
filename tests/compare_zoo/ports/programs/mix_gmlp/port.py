# SPDX-License-Identifier: Apache-2.0
"""Eager functional gMLP: parameters in a dict, forward as free functions, AdamW by hand."""

import sys
from math import cos, pi, sqrt

import torch
import torch.nn.functional as F

P, S = 4, 12
SIDE = S // P
N_CLASSES, DEPTH = 5, 2


def patches(img):
    b = img.shape[0]
    t = img.reshape(b, 3, SIDE, P, SIDE, P)
    return t.permute(0, 2, 4, 1, 3, 5).reshape(b, SIDE * SIDE, 3 * P * P)


def lnorm(p, key, t):
    mu = t.mean(-1, keepdim=True)
    var = ((t - mu) ** 2).mean(-1, keepdim=True)
    return (t - mu) / torch.sqrt(var + 1e-5) * p[key + ".weight"] + p[key + ".bias"]


def dense(p, key, t):
    return F.linear(t, p[key + ".weight"], p[key + ".bias"])


def gating(p, key, z):
    width = z.shape[-1] // 2
    keep, gate = z[..., :width], z[..., width:]  # <- gate_halves
    gate = lnorm(p, key + ".norm", gate)  # <- gate_halves
    kernel = p[key + ".spatial_proj.weight"][..., 0]
    gate = torch.einsum("mn,bnc->bmc", kernel, gate)  # <- spatial_axis
    return keep * (gate + p[key + ".spatial_proj.bias"][:, None])  # <- gate_halves


def forward(p, img):
    w = p["patcher.weight"].flatten(1)
    t = patches(img) @ w.T + p["patcher.bias"]
    for i in range(DEPTH):
        key = f"blocks.{i}"
        z = dense(p, key + ".channel_proj1", lnorm(p, key + ".norm", t))
        z = 0.5 * z * (1.0 + torch.erf(z / sqrt(2.0)))  # <- quick_gelu
        t = t + dense(p, key + ".channel_proj2", gating(p, key + ".sgu", z))
    pooled = lnorm(p, "norm", t).sum(1) / (SIDE * SIDE)
    return dense(p, "head", pooled)


def smoothed_ce(logits, target, s=0.1):
    logp = logits.log_softmax(-1)
    soft = torch.full_like(logp, s / N_CLASSES)  # <- smoothing
    soft.scatter_add_(1, target[:, None], torch.full_like(logp[:, :1], 1.0 - s))  # <- smoothing
    return -(soft * logp).sum(-1).mean()


def lr_at(k, base=5e-3, warm=2, total=6):
    if k < warm:
        return base * (k + 1) / warm  # <- warmup_start
    return base * (1 + cos(pi * (k - warm) / (total - warm))) / 2


params = {k: v.requires_grad_() for k, v in torch.load(sys.argv[1], weights_only=True).items()}
m = {k: torch.zeros_like(v) for k, v in params.items()}
v = {k: torch.zeros_like(t) for k, t in params.items()}

rng = torch.Generator().manual_seed(5)
xs = torch.randn(4, 8, 3, S, S, generator=rng)
ys = torch.randint(0, N_CLASSES, (4, 8), generator=rng)

losses = []
for k in range(4):
    loss = smoothed_ce(forward(params, xs[k]), ys[k])
    grads = dict(zip(params, torch.autograd.grad(loss, list(params.values()))))
    lr = lr_at(k)  # <- warmup_start
    c1, c2 = 1 - 0.9 ** (k + 1), 1 - 0.99 ** (k + 1)
    with torch.no_grad():
        for name, p in params.items():
            p.mul_(1 - lr * 0.05)
            m[name].lerp_(grads[name], 0.1)
            v[name].mul_(0.99).addcmul_(grads[name], grads[name], value=0.01)
            p.sub_(lr * (m[name] / c1) / ((v[name] / c2).sqrt() + 1e-8))  # <- warmup_start
    losses.append(loss.item())
print(losses)
