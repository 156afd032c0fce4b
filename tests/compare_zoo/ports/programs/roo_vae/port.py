# SPDX-License-Identifier: Apache-2.0
"""The VAE in functional style: channels-last arrays, (params, stats, shadow) carried through a step."""
import sys
from typing import NamedTuple

import torch
from torch.distributions import Normal, kl_divergence
from torch.func import grad_and_value
from torch.nn import functional as nnf

torch.set_num_threads(1)

CODE, SLOPE, BN_EPS = 6, 0.2, 1e-5
KEEP = 0.9  # <- bn_momentum


class TrainState(NamedTuple):
    params: dict
    stats: dict
    shadow: dict
    m: dict
    v: dict
    count: int


def hwio(kernel):
    return kernel.permute(2, 3, 1, 0).contiguous()


def transposed_hwio(kernel):
    """ConvTranspose weight (in, out, h, w) -> kernel of the plain convolution over the spread input."""
    kernel = kernel.flip(2, 3)  # <- kernel_not_flipped
    return kernel.permute(2, 3, 0, 1).contiguous()


def flat_hwc(weight, channels):
    """Columns of a layer on a (c, 3, 3) map, put in (3, 3, c) order."""
    return weight.reshape(-1, channels, 3, 3).permute(2, 3, 1, 0).reshape(channels * 9, -1)


def restore(path):
    sd = torch.load(path)
    head_w = flat_hwc(sd["encoder.head.weight"], 16)
    head_b = sd["encoder.head.bias"]
    params = {
        "c1": hwio(sd["encoder.down1.conv.weight"]),
        "c2": hwio(sd["encoder.down2.conv.weight"]),
        "mean": head_w[:, :CODE], "mean_b": head_b[:CODE],
        "logvar": head_w[:, CODE:], "logvar_b": head_b[CODE:],
        "fc": sd["decoder.fc.weight"].view(16, 9, CODE).permute(2, 1, 0).reshape(CODE, 9 * 16),
        "fc_b": sd["decoder.fc.bias"].view(16, 9).T.reshape(-1),
        "u1": transposed_hwio(sd["decoder.up1.weight"]), "u1_b": sd["decoder.up1.bias"],
        "u2": transposed_hwio(sd["decoder.up2.weight"]), "u2_b": sd["decoder.up2.bias"],
    }
    stats = {}
    for n in ("1", "2"):
        at = f"encoder.down{n}.bn."
        params[f"bn{n}"], params[f"bn{n}_b"] = sd[at + "weight"], sd[at + "bias"]
        stats[f"bn{n}"] = sd[at + "running_mean"], sd[at + "running_var"]
    params = {k: p.clone(memory_format=torch.contiguous_format) for k, p in params.items()}
    zeros = lambda: {k: torch.zeros_like(p) for k, p in params.items()}
    return TrainState(params, stats, {k: p.clone() for k, p in params.items()}, zeros(), zeros(), 0)


def conv(x, kernel, stride, pads):
    x = nnf.pad(x.permute(0, 3, 1, 2), pads)
    return nnf.conv2d(x, kernel.permute(3, 2, 0, 1), stride=stride).permute(0, 2, 3, 1)


def up_conv(x, kernel, bias):
    """Stride-2 transposed convolution: zeros between the pixels, then a plain convolution."""
    b, h, w, c = x.shape
    spread = x.new_zeros(b, 2 * h - 1, 2 * w - 1, c)
    spread[:, ::2, ::2] = x
    return conv(spread, kernel, 1, (2, 2, 2, 2)) + bias  # <- kernel_not_flipped


def batch_norm(x, scale, shift, running, train):
    if train:
        n = x[..., 0].numel()
        mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2), correction=0)
        seen = (mean.detach(), var.detach() * n / (n - 1))
        running = tuple(KEEP * old + (1 - KEEP) * new for old, new in zip(running, seen))  # <- bn_momentum
    else:
        mean, var = running
    return (x - mean) / (var + BN_EPS).sqrt() * scale + shift, running


def encode(p, stats, x, train):
    stats = dict(stats)
    for n in "12":
        x = conv(x, p["c" + n], 2, (1, 1, 1, 1))
        x, stats["bn" + n] = batch_norm(x, p["bn" + n], p[f"bn{n}_b"], stats["bn" + n], train)  # <- bn_momentum
        x = torch.where(x > 0, x, SLOPE * x)
    x = x.flatten(1)
    return x @ p["mean"] + p["mean_b"], x @ p["logvar"] + p["logvar_b"], stats


def decode(p, z):
    x = z @ p["fc"] + p["fc_b"]
    x = torch.maximum(x, SLOPE * x).view(-1, 3, 3, 16)
    x = up_conv(x, p["u1"], p["u1_b"])  # <- kernel_not_flipped
    return up_conv(torch.maximum(x, SLOPE * x), p["u2"], p["u2_b"])  # <- kernel_not_flipped


def objective(p, stats, x, noise, beta):
    mean, logvar, stats = encode(p, stats, x, train=noise is not None)
    posterior = Normal(mean, (logvar / 2).exp())
    z = mean if noise is None else mean + posterior.scale * noise
    logits = decode(p, z)
    recon = (nnf.softplus(logits) - x * logits).sum((1, 2, 3))
    kl = kl_divergence(posterior, Normal(0.0, 1.0)).sum(-1)  # <- kl_mean_latent
    return (recon + beta * kl).mean(), stats  # <- kl_mean_latent kl_warmup_late


def train_step(s, x, noise, beta, lr=4e-3, b1=0.9, b2=0.999, eps=1e-8, decay=0.8):
    grads, (loss, stats) = grad_and_value(objective, has_aux=True)(s.params, s.stats, x, noise, beta)  # <- kl_warmup_late kl_mean_latent
    t = s.count + 1
    m = {k: b1 * s.m[k] + (1 - b1) * g for k, g in grads.items()}
    v = {k: b2 * s.v[k] + (1 - b2) * g * g for k, g in grads.items()}
    new = {k: p - lr * (m[k] / (1 - b1 ** t)) / ((v[k] / (1 - b2 ** t)).sqrt() + eps) for k, p in s.params.items()}
    shadow = {k: torch.lerp(new[k], old, decay) for k, old in s.shadow.items()}  # <- ema_before_step
    return TrainState(new, stats, shadow, m, v, t), loss  # <- ema_before_step


def discs(rng, n=10):
    place = 2 + 8 * torch.rand(n, 2, 1, 1, generator=rng)
    size = 1.5 + 2 * torch.rand(n, 1, 1, generator=rng)
    axis = torch.arange(12.0)
    away = torch.hypot(axis[None, :, None] - place[:, 0], axis[None, None, :] - place[:, 1])
    return torch.sigmoid(2 * (size - away))[..., None]


def run(path):
    state, rng, history = restore(path), torch.Generator().manual_seed(61), []
    for step in range(5):
        x = discs(rng)
        noise = torch.randn(len(x), CODE, generator=rng)
        beta = min((step + 1) / 4, 1.0)  # <- kl_warmup_late
        state, loss = train_step(state, x, noise, beta)  # <- ema_before_step kl_warmup_late
        history.append(float(loss))
    with torch.no_grad():
        held_out, _ = objective(state.shadow, state.stats, discs(rng), None, 1.0)  # <- bn_momentum ema_before_step
    return history + [float(held_out)]


losses = run(sys.argv[1])
print(losses)
