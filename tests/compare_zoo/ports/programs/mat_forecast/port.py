# SPDX-License-Identifier: Apache-2.0
"""Quantile forecaster on plain tensors: (time, row, channel) layout, taps as matmuls, own SGD."""

import sys
from dataclasses import dataclass
from math import cos, pi

import torch


@dataclass(frozen=True)
class Config:
    past: int = 24
    ahead: int = 6
    channels: int = 3
    dilations: tuple = (1, 2, 4)
    taus: tuple = (0.1, 0.5, 0.9)
    peak_lr: float = 0.05
    mu: float = 0.9
    wd: float = 0.05
    steps: int = 5
    warmup: int = 2


def import_params(sd, cfg):
    p = {
        "scale": sd["revin.gain"],
        "offset": sd["revin.shift"],
        "embed": sd["inp.weight"][:, 0, 0][None],
        "embed_b": sd["inp.bias"],
    }
    for i in range(len(cfg.dilations)):
        w = sd[f"blocks.{i}.conv.weight"].permute(2, 1, 0)
        p[f"taps{i}"] = w
        p[f"taps{i}_b"] = sd[f"blocks.{i}.conv.bias"]
        p[f"proj{i}"] = sd[f"blocks.{i}.mix.weight"][:, :, 0].T
        p[f"proj{i}_b"] = sd[f"blocks.{i}.mix.bias"]
    p["out"], p["out_b"] = sd["head.weight"].T, sd["head.bias"]
    return {k: v.clone().contiguous().requires_grad_() for k, v in p.items()}


def delayed(x, n):
    """x[t - n] with zeros before the start; time is the first axis."""
    rolled = torch.roll(x, n, dims=0)  # <- causal_pad
    mask = (torch.arange(x.shape[0]) >= n).to(x.dtype)  # <- causal_pad
    return rolled * mask[:, None, None]


def temporal_block(p, i, x, d):
    w = p[f"taps{i}"]
    h = p[f"taps{i}_b"] + sum(  # <- causal_pad
        delayed(x, (2 - k) * d) @ w[k] for k in range(3)
    )  # <- causal_pad
    n = x.shape[-1]
    h = h[..., n:].sigmoid() * h[..., :n].tanh()  # <- gate_order
    return torch.addmm(p[f"proj{i}_b"], h.reshape(-1, n), p[f"proj{i}"]).view_as(x) + x


def forecast(p, cfg, series):
    mu = series.mean(-1)
    centred = series - mu[..., None]
    sd = (centred.square().sum(-1) / cfg.past + 1e-3).sqrt()  # <- revin_variance
    z = centred / sd[..., None] * p["scale"][None, :, None] + p["offset"][None, :, None]
    x = z.flatten(0, 1).T[..., None] @ p["embed"] + p["embed_b"]
    for i, d in enumerate(cfg.dilations):
        x = temporal_block(p, i, x, d)
    feat = x[-1]
    feat = 0.5 * feat * (1 + torch.erf(feat / 2**0.5))
    y = (feat @ p["out"] + p["out_b"]).unflatten(0, (-1, cfg.channels))
    y = (y - p["offset"][:, None]) / p["scale"][:, None]
    y = y * sd[..., None] + mu[..., None]
    return y.unflatten(-1, (cfg.ahead, len(cfg.taus)))


def quantile_loss(pred, target, taus):
    tau = torch.tensor(taus)
    diff = target.unsqueeze(-1) - pred
    return (tau * diff.relu() + (1 - tau) * (-diff).relu()).mean()


def lr_at(step, cfg):
    if step < cfg.warmup:
        return cfg.peak_lr * (step + 1) / cfg.warmup
    done = (step - cfg.warmup) / (cfg.steps - cfg.warmup)  # <- cosine_start
    return cfg.peak_lr * (0.5 + 0.5 * cos(pi * done))  # <- cosine_start


def stream(cfg, batch=4):
    g = torch.Generator().manual_seed(77)
    total = cfg.past + cfg.ahead
    clock = torch.arange(total).float()
    for _ in range(cfg.steps):
        phase = torch.rand(batch, cfg.channels, 1, generator=g) * 6.28
        level = torch.randn(batch, cfg.channels, 1, generator=g) * 2
        noise = torch.randn(batch, cfg.channels, total, generator=g)
        yield (level + torch.sin(clock * 0.5 + phase) * 1.5 + 0.2 * noise).split(
            [cfg.past, cfg.ahead], -1
        )


cfg = Config()
params = import_params(torch.load(sys.argv[1], weights_only=True), cfg)
velocity = {k: torch.zeros_like(v) for k, v in params.items()}
losses = []
for step, (past, ahead) in enumerate(stream(cfg)):
    loss = quantile_loss(forecast(params, cfg, past), ahead, cfg.taus)
    grads = torch.autograd.grad(loss, list(params.values()))
    lr = lr_at(step, cfg)  # <- cosine_start
    with torch.no_grad():
        for (name, w), g in zip(params.items(), grads):
            if w.ndim > 1:
                g = g + cfg.wd * w
            velocity[name].mul_(cfg.mu).add_(g)  # <- nesterov_lookahead
            w.sub_(lr * (g + cfg.mu * velocity[name]))  # <- nesterov_lookahead
    losses.append(loss.item())
print(losses)
