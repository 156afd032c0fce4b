# SPDX-License-Identifier: Apache-2.0
"""Denoising trainer with registries of pure layers; tokens last, x0/eps form of the v loss."""

import sys

import numpy as np
import torch

LAYERS = {}
N, C, S, E = 20, 6, 6, 8


def layer(fn):
    LAYERS[fn.__name__] = fn
    return fn


def silu(x):
    return x * torch.sigmoid(x)


def log_snr_tables():
    u = (np.arange(N + 1) / N + 0.008) / 1.008
    curve = np.cos(u * np.pi / 2) ** 2  # <- schedule
    keep = np.maximum(curve[1:] / curve[:-1], 0.001)  # <- schedule
    abar = np.exp(np.cumsum(np.log(keep)))  # <- schedule
    return (torch.tensor(t, dtype=torch.float32) for t in (abar, 1 - abar))


def condition(p, t, y):
    k = np.linspace(0, 1, E // 2)  # <- frequencies
    angle = t.unsqueeze(1) * torch.tensor(1000.0**-k, dtype=torch.float32)  # <- frequencies
    wave = torch.hstack([torch.sin(angle), torch.cos(angle)])
    h = silu(wave @ p["time.mlp.0.weight"].T + p["time.mlp.0.bias"])
    return h @ p["time.mlp.2.weight"].T + p["time.mlp.2.bias"] + p["time.label.weight"][y]


@layer
def film(p, name, x, cond):
    """x: batch, height, width, channel"""
    g = x.unflatten(-1, (3, C // 3))
    mu = g.mean((1, 2, 4), keepdim=True)
    var = (g - mu).square().mean((1, 2, 4), keepdim=True)
    z = ((g - mu) / (var + 1e-3).sqrt()).flatten(-2)
    z = z * p[name + ".norm.weight"] + p[name + ".norm.bias"]
    mod = silu(cond) @ p[name + ".film.weight"].T + p[name + ".film.bias"]
    mod = mod[:, None, None]
    z = silu(z + z * mod[..., :C] + mod[..., C:])  # <- film_one
    y = p[name + ".conv.bias"]
    for i in range(3):
        for j in range(3):
            moved = torch.roll(z, (1 - i, 1 - j), (1, 2))
            y = y + moved @ p[name + ".conv.weight"][:, :, i, j].T
    return x + y


@layer
def att(p, name, x, cond):
    seq = x.flatten(1, 2)
    qkv = seq @ p[name + ".mha.in_proj_weight"].T + p[name + ".mha.in_proj_bias"]
    q, k, v = qkv.unflatten(-1, (3, 2, C // 2)).unbind(2)
    logit = torch.einsum("bqhd,bkhd->bhqk", q, k) / (C // 2) ** 0.5
    mixed = torch.einsum("bhqk,bkhd->bqhd", logit.softmax(-1), v).flatten(2)
    mixed = mixed @ p[name + ".mha.out_proj.weight"].T + p[name + ".mha.out_proj.bias"]
    return x + mixed.view_as(x)


PLAN = [("a", "film"), ("att", "att"), ("b", "film")]


def denoise(p, x, t, y):
    cond = condition(p, t, y)
    h = x[..., None] * p["stem.weight"].flatten() + p["stem.bias"]
    for name, kind in PLAN:
        h = LAYERS[kind](p, name, h, cond)
    return (h * p["out.weight"].flatten()).sum(-1) + p["out.bias"]


def sample(gen, n=4):
    clean = torch.randn(n, 1, S, S, generator=gen).cumsum(2)[:, 0] / 2
    eps = torch.randn(n, 1, S, S, generator=gen)[:, 0]
    t = torch.randint(0, N, (n,), generator=gen)
    return clean, eps, t, torch.randint(0, 3, (n,), generator=gen)


params = torch.load(sys.argv[1], weights_only=True)
params = {k: v.clone().requires_grad_() for k, v in params.items()}
average = {k: v.detach().clone() for k, v in params.items()}
mean = {k: torch.zeros_like(v) for k, v in params.items()}
peak = {k: torch.zeros_like(v) for k, v in params.items()}
signal, var = log_snr_tables()
gen = torch.Generator().manual_seed(1234)
losses = []
for step in range(5):
    clean, eps, t, y = sample(gen)
    sig, nse = (table[t].sqrt().view(-1, 1, 1) for table in (signal, var))
    noisy = sig * clean + nse * eps
    out = denoise(params, noisy, t, y)
    recovered = sig * noisy - nse * out  # <- v_target
    # error of v is the error of x0 over the noise level: v = (a * x_t - x0) / s
    error = (recovered - clean).square().flatten(1).mean(1) / var[t]  # <- v_target
    loss = torch.mean(torch.minimum(signal[t], 5 * var[t]) * error)  # <- v_target
    grads = torch.autograd.grad(loss, list(params.values()))
    with torch.no_grad():
        for (k, w), g in zip(params.items(), grads):
            mean[k].mul_(0.8).add_(0.2 * g)
            peak[k] = torch.maximum(0.95 * peak[k], g.abs() + 1e-2)  # <- infinity_norm
            rate = 0.01 * 0.8**step / (1 - 0.8 ** (step + 1))
            w -= rate * mean[k] / peak[k]  # <- infinity_norm
            average[k] += (w - average[k]) / 10
            if step == 2:
                w.copy_(average[k])
    losses.append(loss.item())
print(losses)
