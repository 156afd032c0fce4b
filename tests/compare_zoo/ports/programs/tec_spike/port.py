# SPDX-License-Identifier: Apache-2.0
"""Spiking network without autograd.Function: straight-through spikes, whole-sequence layers."""

import sys
from dataclasses import dataclass, field

import torch

torch.set_num_threads(1)


@dataclass
class LayerCfg:
    threshold: float
    name: str


@dataclass
class Cfg:
    ticks: int = 12
    inputs: int = 14
    classes: int = 5
    batch: int = 8
    gain: float = 5.0
    leak_out: float = 0.85
    band: tuple = (0.05, 0.15)
    layers: list = field(default_factory=lambda: [LayerCfg(1.0, "a"), LayerCfg(0.7, "b")])
    rates: dict = field(  # <- leak_rate
        default_factory=lambda: {"w": 0.01, "b": 0.01, "leak": 0.002}
    )  # <- leak_rate


cfg = Cfg()


def fire(v):
    soft = v / (1 + cfg.gain * v.abs())  # <- surrogate_slope
    return (v > 0).float() + soft - soft.detach()  # <- surrogate_slope


def spiking_layer(drive, leak, threshold):
    """(T, B, N) input currents to (T, B, N) spikes, subtractive reset."""
    volt, out = torch.zeros_like(drive[0]), []
    for current in drive.unbind(0):
        kick = (volt.detach() > threshold).float() * threshold  # <- reset_detached
        volt = leak * volt + (current - kick)  # <- reset_detached
        out.append(fire(volt - threshold))  # <- surrogate_slope
    return torch.stack(out)


def leaky_kernel(n, k):
    lag = torch.arange(n)[:, None] - torch.arange(n)[None, :]
    return torch.where(lag >= 0, (1 - k) * k ** lag.clamp(min=0).float(), 0.0)  # <- readout_leak


def run(p, spikes):
    x, activity = spikes, []
    for layer in cfg.layers:
        drive = x @ p[layer.name, "w"] + p[layer.name, "b"]
        x = spiking_layer(drive, p[layer.name, "leak"], layer.threshold)
        activity.append(x.mean((1, 2)))
    kernel = leaky_kernel(cfg.ticks, cfg.leak_out)
    smooth = torch.einsum("ts,sbn->tbn", kernel, x)  # <- readout_leak
    return (smooth @ p["out", "w"]).amax(0), torch.stack(activity)


def loss_fn(p, spikes, labels):
    peak, activity = run(p, spikes)
    z = 6.0 * peak
    nll = torch.logsumexp(z, 1) - (z * torch.eye(cfg.classes)[labels]).sum(1)
    lo, hi = cfg.band
    excess = activity - activity.clamp(lo, hi)
    return nll.mean() + 0.5 * (excess**2).sum()  # <- rate_reduction


sd = torch.load(sys.argv[1], weights_only=True)
params = {("out", "w"): sd["readout.weight"].t().contiguous()}
for i, layer in enumerate(cfg.layers):
    params[layer.name, "w"] = sd[f"layers.{i}.fc.weight"].t().contiguous()
    params[layer.name, "b"] = sd[f"layers.{i}.fc.bias"]
    params[layer.name, "leak"] = sd[f"layers.{i}.beta"]
m = {k: torch.zeros_like(v) for k, v in params.items()}
v = {k: torch.zeros_like(x) for k, x in params.items()}
gen = torch.Generator().manual_seed(42)
losses = []
for t in range(1, 6):
    spikes = (torch.rand(cfg.ticks, cfg.batch, cfg.inputs, generator=gen) < 0.35).float()
    labels = torch.randint(0, cfg.classes, (cfg.batch,), generator=gen)
    params = {k: x.detach().requires_grad_() for k, x in params.items()}
    loss = loss_fn(params, spikes, labels)
    grads = dict(zip(params, torch.autograd.grad(loss, list(params.values()))))
    with torch.no_grad():
        for k, grad in grads.items():
            m[k] += 0.1 * (grad - m[k])
            v[k] += 0.001 * (grad**2 - v[k])
            unit = (m[k] / (1 - 0.9**t)) / ((v[k] / (1 - 0.999**t)).sqrt() + 1e-4)
            rate = cfg.rates[k[1]]  # <- leak_rate
            params[k] = params[k] - rate * (unit + 0.1 * params[k])  # <- leak_rate
            if k[1] == "leak":
                params[k] = params[k].clamp(0.5, 0.95)
    losses.append(loss.item())
print(losses)
