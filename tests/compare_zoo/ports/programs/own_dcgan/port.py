# SPDX-License-Identifier: Apache-2.0
"""The adversarial pair as functions of parameter lists: upsampling by zeros between the pixels and
an ordinary convolution, softplus losses, torch.func gradients, its own Adam.
"""

import sys

import torch
import torch.nn.functional as F

SLOPE = 0.2  # <- slope
B1, B2 = 0.5, 0.999  # <- betas


def gather(theirs):
    """Generator kernels become those of ordinary convolutions, flipped and out-channel first."""
    made = {}
    for name, value in theirs["G"].items():
        if value.dim() == 4:
            made[f"up{name[5]}"] = value.transpose(0, 1).flip(2, 3).contiguous()  # <- turned
        elif name.split(".")[-1] in ("weight", "bias"):
            made[f"{name.split('.')[-1]}{name[5]}"] = value.clone()
    kept = {
        "k1": theirs["D"]["main.0.weight"],
        "k2": theirs["D"]["main.2.weight"],
        "k3": theirs["D"]["main.5.weight"].flatten(),
        "scale": theirs["D"]["main.3.weight"],
        "shift": theirs["D"]["main.3.bias"],
    }
    return made, {k: v.clone() for k, v in kept.items()}


def whiten(x, scale, shift):
    var, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0, keepdim=True)  # <- together
    return (x - mean) / (var + 1e-5).sqrt() * scale[:, None, None] + shift[:, None, None]


def spread(x):
    """Zeros between the pixels."""
    n, c, h, w = x.shape
    x = torch.stack((x, torch.zeros_like(x)), 4).reshape(n, c, h, 2 * w)
    x = torch.stack((x, torch.zeros_like(x)), 3).reshape(n, c, 2 * h, 2 * w)
    return x[:, :, :-1, :-1]


def paint(g, z):
    x = torch.einsum("nz,cz...->nc...", z, g["up0"].flip(2, 3))
    x = torch.relu(whiten(x, g["weight1"], g["bias1"]))
    x = F.conv2d(F.pad(spread(x), (2, 2, 2, 2)), g["up3"])  # <- turned
    x = torch.relu(whiten(x, g["weight4"], g["bias4"]))
    return torch.tanh(F.conv2d(F.pad(spread(x), (2, 2, 2, 2)), g["up6"]))  # <- turned


def bend(x):
    return torch.maximum(x, SLOPE * x)  # <- slope


def judge(d, x):
    x = bend(F.conv2d(x, d["k1"], stride=2, padding=1))  # <- slope
    x = whiten(F.conv2d(x, d["k2"], stride=2, padding=1), d["scale"], d["shift"])  # <- together
    return bend(x).flatten(1) @ d["k3"]  # <- slope


def d_loss(d, real, fake):
    on_real, on_fake = judge(d, real), judge(d, fake)  # <- together
    return (F.softplus(on_real) - 0.9 * on_real).mean() + F.softplus(on_fake).mean()


def g_loss(g, d, z):
    return F.softplus(-judge(d, paint(g, z))).mean()  # <- stale


def adam(params, grads, state, t):
    new = {}
    for name, p in params.items():
        m, v = state.get(name, (0.0, 0.0))
        m = B1 * m + (1 - B1) * grads[name]  # <- betas
        v = B2 * v + (1 - B2) * grads[name] ** 2
        state[name] = (m, v)
        new[name] = p - 0.01 * (m / (1 - B1**t)) / ((v / (1 - B2**t)).sqrt() + 1e-4)  # <- betas
    return new


g, d = gather(torch.load(sys.argv[1]))
g_state, d_state = {}, {}
rng = torch.Generator().manual_seed(52)
losses = []
for t in range(1, 5):
    real = torch.rand(5, 3, 16, 16, generator=rng) * 2 - 1
    z = torch.randn(5, 10, 1, 1, generator=rng).view(5, 10)
    d_grads, d_value = torch.func.grad_and_value(d_loss)(d, real, paint(g, z))
    fresh = adam(d, d_grads, d_state, t)  # <- stale
    g_grads, g_value = torch.func.grad_and_value(g_loss)(g, fresh, z)  # <- stale
    g, d = adam(g, g_grads, g_state, t), fresh
    losses.append((d_value + g_value).item())
