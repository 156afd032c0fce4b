# SPDX-License-Identifier: Apache-2.0
"""Channels-last ConvNeXt written as functions of a tree of arrays, the way a JAX user would."""
import math
import sys

import torch


def tree(path):
    out = {}
    for name, w in torch.load(path, weights_only=True).items():
        if w.ndim == 4 and name.endswith("weight"):
            w = w.permute(2, 3, 1, 0)  # HWIO
        elif w.ndim == 4:
            w = w.flatten()
        out[name] = w.contiguous().clone().requires_grad_()
    return out


def layer_norm(p, name, x):
    mean = x.mean(-1, keepdim=True)
    var = x.var(-1, keepdim=True, unbiased=False)
    return (x - mean) * torch.rsqrt(var + 1e-6) * p[name + ".weight"] + p[name + ".bias"]


def patch_conv(p, name, x):
    B, H, W, C = x.shape
    x = x.reshape(B, H // 2, 2, W // 2, 2, C)
    return torch.einsum("bhiwjc,ijco->bhwo", x, p[name + ".weight"]) + p[name + ".bias"]


def depthwise(p, name, x):
    k = p[name + ".weight"]
    B, H, W, C = x.shape
    room = torch.nn.functional.pad(x, (0, 0, 2, 2, 2, 2))
    y = p[name + ".bias"].expand(B, H, W, C)
    for i in range(5):
        for j in range(5):
            y = y + room[:, i:i + H, j:j + W] * k[i, j, 0]
    return y


def pointwise(p, name, x):
    return x @ p[name + ".weight"][0, 0] + p[name + ".bias"]


def response_norm(p, name, x):
    energy = x.square().sum((1, 2)).sqrt()  # <- grn_mean
    rel = energy / (energy.mean(-1, keepdim=True) + 1e-6)  # <- grn_mean
    gain = 1 + p[name + ".gamma"] * rel  # <- grn_residual
    return x * gain[:, None, None] + p[name + ".beta"]  # <- grn_residual


def block(p, name, x):
    h = layer_norm(p, name + ".norm", depthwise(p, name + ".dwconv", x))
    h = pointwise(p, name + ".pwconv1", h)
    h = h * torch.special.ndtr(h)
    h = pointwise(p, name + ".pwconv2", response_norm(p, name + ".grn", h))
    return torch.addcmul(x, h, p[name + ".gamma"])


def apply(p, x):
    x = layer_norm(p, "stem_norm", patch_conv(p, "stem", x))
    x = block(p, "block0", x)
    x = patch_conv(p, "down", layer_norm(p, "down_norm", x))
    x = block(p, "block1", x)
    pooled = layer_norm(p, "norm", x.mean((1, 2)))  # <- pool_norm
    return pooled @ p["head.weight"].t() + p["head.bias"]


def loss_fn(p, x, a, b, lam):
    logits = apply(p, x)
    z = torch.logsumexp(logits, 1)
    ce = lambda cls: z - logits.gather(1, cls[:, None])[:, 0]
    return (lam * ce(a) + (1 - lam) * ce(b)).mean()  # <- mix_share


def adamw(p, grads, state, t, lr):
    b1, b2, wd = 0.9, 0.98, 0.05
    for k in p:
        mu, nu = state.get(k, (0.0, 0.0))
        mu, nu = b1 * mu + (1 - b1) * grads[k], b2 * nu + (1 - b2) * grads[k] ** 2
        state[k] = mu, nu
        step = (mu / (1 - b1 ** t)) / (torch.sqrt(nu / (1 - b2 ** t)) + 1e-8)
        p[k] = (p[k] - lr * (step + wd * p[k])).detach().requires_grad_()  # <- cosine


params, state, losses = tree(sys.argv[1]), {}, []
g = torch.Generator().manual_seed(13)
for t in range(4):
    images = torch.randn(6, 3, 12, 12, generator=g).movedim(1, -1)
    label = torch.randint(6, (6,), generator=g)
    lam = 0.5 + 0.4 * torch.rand((), generator=g)
    images = torch.lerp(images.flip(0), images, lam)
    loss = loss_fn(params, images, label, label.flip(0), lam)
    grads = dict(zip(params, torch.autograd.grad(loss, list(params.values()))))
    rate = 5e-3 * math.cos(0.5 * math.pi * t / 4) ** 2  # <- cosine
    adamw(params, grads, state, t + 1, rate)
    losses.append(loss.item())
print(losses)
