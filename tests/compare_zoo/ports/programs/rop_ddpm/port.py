# SPDX-License-Identifier: Apache-2.0
"""Noise-prediction training on one flat weight vector: views for the layers, closures for the schedule."""
import math
import sys

import torch
from torch.nn.functional import conv2d

torch.set_num_threads(1)

T, WIDTH, N_GROUPS, D = 100, 16, 4, 24


def flatten_checkpoint(path):
    layout, pieces, at = {}, [], 0
    for name, value in sorted(torch.load(path).items()):
        layout[name] = (at, value.shape)
        at += value.numel()
        pieces.append(value.reshape(-1))
    return torch.cat(pieces), layout


def views(flat, layout):
    return {name: flat[at : at + shape.numel()].view(shape) for name, (at, shape) in layout.items()}


def time_table():
    half = D // 2
    rates = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / (half - 1))  # <- frequency_shift
    angles = torch.arange(T, dtype=torch.float64)[:, None] * rates.float()  # <- frequency_shift
    return torch.cat([torch.sin(angles), torch.cos(angles)], 1).float()


def noise_levels():
    beta = torch.linspace(1e-4, 0.02, T, dtype=torch.float64)
    log_kept = torch.nn.functional.pad(torch.log1p(-beta).cumsum(0), (1, 0))
    return log_kept.exp().float()


TIMES, KEPT = time_table(), noise_levels()  # <- frequency_shift


def swish(x):
    return x.sigmoid() * x


def group_norm(w, name, x):
    b, c, rows, cols = x.shape
    g = x.reshape(b, N_GROUPS, c // N_GROUPS, rows * cols)  # <- groups_interleaved
    var, mu = torch.var_mean(g, dim=(2, 3), correction=0, keepdim=True)  # <- groups_interleaved
    g = ((g - mu) / (var + 1e-5).sqrt()).reshape(x.shape)  # <- groups_interleaved
    return g * w[name + ".weight"].view(1, c, 1, 1) + w[name + ".bias"].view(1, c, 1, 1)


def conv(w, name, x):
    kernel = w[name + ".weight"]
    return conv2d(x, kernel, w[name + ".bias"], padding=kernel.shape[-1] // 2)


def dense(w, name, x):
    return torch.addmm(w[name + ".bias"], x, w[name + ".weight"].t())


def residual(w, name, x, emb):
    h = conv(w, name + ".conv1", swish(group_norm(w, name + ".norm1", x)))  # <- groups_interleaved
    h = h + dense(w, name + ".time_proj", swish(emb)).unflatten(1, (-1, 1, 1))
    h = conv(w, name + ".conv2", swish(group_norm(w, name + ".norm2", h)))  # <- groups_interleaved
    if name + ".skip.weight" in w:
        x = conv(w, name + ".skip", x)
    return x + h


def predict_noise(w, x, t):
    emb = dense(w, "time_mlp.2", swish(dense(w, "time_mlp.0", TIMES[t])))  # <- frequency_shift
    fine = conv(w, "conv_in", x)
    b, c, rows, cols = fine.shape
    coarse = fine.reshape(b, c, rows // 2, 2, cols // 2, 2).mean(dim=(3, 5))
    coarse = residual(w, "down", coarse, emb)
    wide = coarse.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
    h = residual(w, "up", torch.cat((wide, fine), 1), emb)
    return conv(w, "conv_out", swish(group_norm(w, "norm_out", h)))  # <- groups_interleaved


def make_loss(layout, gamma=5.0, pull=0.5):
    def loss(flat, slow, clean, t, noise):
        kept = KEPT[t + 1]  # <- alpha_one_step_early
        signal = kept / (1 - kept)
        mixed = torch.einsum("b,bchw->bchw", kept.sqrt(), clean)  # <- alpha_one_step_early
        mixed = mixed + torch.einsum("b,bchw->bchw", (1 - kept).sqrt(), noise)  # <- alpha_one_step_early
        guess = predict_noise(views(flat, layout), mixed, t)
        anchor = predict_noise(views(slow, layout), mixed, t)  # <- ema_without_warmup
        weight = torch.minimum(signal, torch.full_like(signal, gamma)) / signal  # <- snr_weight_of_x0
        err = (guess - noise).square().flatten(1).mean(1)
        return torch.dot(weight, err) / len(t) + pull * (guess - anchor).square().mean()  # <- snr_weight_of_x0

    return loss


def make_adam(size, lr=2e-3, b1=0.9, b2=0.999, eps=1e-8):
    m, v = torch.zeros(size), torch.zeros(size)

    def move(flat, grad, n):
        m.lerp_(grad, 1 - b1)
        v.mul_(b2).addcmul_(grad, grad, value=1 - b2)
        return flat - lr * (m / (1 - b1**n)) / ((v / (1 - b2**n)).sqrt() + eps)

    return move


def slow_rate(n):
    return min(0.999, (1 + n) / (10 + n))  # <- ema_without_warmup


flat, layout = flatten_checkpoint(sys.argv[1])
slow = flat.clone()
loss_of, move = make_loss(layout), make_adam(flat.numel())
source = torch.Generator().manual_seed(31)
losses = []
for n in range(1, 6):
    clean = 2 * torch.rand(6, 1, 8, 8, generator=source).round() - 1
    t = torch.randint(T, (6,), generator=source)
    noise = torch.randn(6, 1, 8, 8, generator=source)
    flat.requires_grad_()
    value = loss_of(flat, slow, clean, t, noise)
    (grad,) = torch.autograd.grad(value, flat)
    flat = move(flat.detach(), grad, n)
    slow = torch.lerp(flat, slow, slow_rate(n))  # <- ema_without_warmup
    losses.append(value.item())
print(losses)
