# SPDX-License-Identifier: Apache-2.0
"""Hyena without Fourier transforms: the long filter becomes a lower triangular Toeplitz matrix."""

import math
import sys

import torch

L, C = 24, 12
S = {
    name: t.clone().requires_grad_()
    for name, t in torch.load(sys.argv[1], weights_only=True).items()
}
lag = torch.arange(L)[:, None] - torch.arange(L)[None, :]  # lag[i, j] = i - j


def position_table():
    phase = 2 * math.pi * torch.arange(L) / L  # <- features
    rows = [torch.arange(L) / (L - 1)]
    rows += [torch.cos(phase * 1e-4), torch.cos(phase)]  # <- features
    rows += [-torch.sin(phase * 1e-4), -torch.sin(phase)]  # <- features
    return torch.stack(rows, dim=1)


TABLE = position_table()  # <- features
RATE = torch.linspace(-math.log(0.01) / 1.5, -math.log(0.01) / 0.3, C)  # <- decay
WINDOW = (-RATE * TABLE[:, :1]).exp()  # <- decay


def affine(name, x):
    y = x @ S[name + ".weight"].mT
    return y + S[name + ".bias"] if name + ".bias" in S else y


def long_filter(p):
    freq = S[p + "implicit.1.freq"]
    h = torch.sin(freq * affine(p + "implicit.0", TABLE))
    h = torch.sin(freq * affine(p + "implicit.2", h))
    return affine(p + "implicit.4", h) * WINDOW  # <- decay


def short_conv(p, x):
    """taps over (batch, time, channel): tap 2 is the present, tap 0 two steps ago"""
    taps, bias = S[p + "short_filter.weight"][:, 0], S[p + "short_filter.bias"]
    ago1 = torch.roll(x, 1, dims=1) * (torch.arange(L) >= 1)[:, None]  # <- short
    ago2 = torch.roll(x, 2, dims=1) * (torch.arange(L) >= 2)[:, None]  # <- short
    return x * taps[:, 2] + ago1 * taps[:, 1] + ago2 * taps[:, 0] + bias  # <- short


def hyena(p, x):
    gate_out, gate_in, v = short_conv(p, affine(p + "in_proj", x)).split(C, 2)
    kernel = long_filter(p + "filter_fn.")
    toeplitz = kernel[lag % L] * (lag >= 0)[..., None]  # <- causal
    u = gate_in * v
    mixed = torch.einsum("ijc,bjc->bic", toeplitz, u)  # <- causal
    mixed = mixed + S[p + "filter_fn.bias"] * u
    return affine(p + "out_proj", gate_out * mixed)


def standardise(p, x):
    x = x - x.mean(-1, keepdim=True)
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * S[p + "weight"] + S[p + "bias"]


def loss_of(tokens):
    x = S["emb.weight"][tokens[:, :L]]  # <- shift
    for n in range(2):
        x = x + hyena(f"mixers.{n}.", standardise(f"norms.{n}.", x))
    z = affine("head", x)
    right = torch.take_along_dim(z, tokens[:, 1:, None], dim=2)[..., 0]  # <- shift
    return (z.logsumexp(2) - right).mean()


gen = torch.Generator().manual_seed(13)
losses = []
own = [k for k in S if not k.endswith("implicit.3.freq")]  # the shared frequency once
for _ in range(4):
    loss = loss_of(torch.randint(0, 17, (3, 25), generator=gen))
    for name, slope in zip(own, torch.autograd.grad(loss, [S[k] for k in own])):
        S[name] = (S[name] - 0.3 * slope).detach().requires_grad_()
    losses.append(loss.item())
print(losses)
