# SPDX-License-Identifier: Apache-2.0
"""FNO without FFTs: real DFT matrices, weights stacked over layers, channels last."""

import math
import sys
from dataclasses import dataclass

import torch

torch.set_num_threads(1)


@dataclass(frozen=True)
class Operator:
    grid: int = 32
    modes: int = 7
    depth: int = 3
    steps: int = 5
    peak: float = 0.02
    b1: float = 0.9
    b2: float = 0.99
    guard: float = 1e-6


OP = Operator()


def dft_tables(n, modes):
    k = torch.arange(modes, dtype=torch.float64)  # <- mode_count
    angle = 2 * math.pi * torch.outer(torch.arange(n, dtype=torch.float64), k) / n
    double = torch.where(k > 0, 2.0, 1.0) / n  # <- one_sided
    fwd = torch.stack([angle.cos(), -angle.sin()])
    back = torch.stack([angle.cos() * double, -angle.sin() * double])  # <- one_sided
    return fwd.float(), back.float()


FWD, BACK = dft_tables(OP.grid, OP.modes)


def gelu(x):
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def spectral(x, w):
    """x (batch, grid, channels); w (2, modes, cin, cout) as real and imaginary parts."""
    re, im = torch.einsum("pnk,bni->pbki", FWD[:, :, : OP.modes], x)  # <- mode_count
    mix = lambda s, c: torch.einsum("bki,kio->bko", s, c)
    out = torch.stack([mix(re, w[0]) - mix(im, w[1]), mix(re, w[1]) + mix(im, w[0])])
    return torch.einsum("pnk,pbko->bno", BACK, out)  # <- mode_count one_sided


def operator(p, a):
    where = torch.arange(OP.grid) / OP.grid  # <- coordinate_ends
    x = a[..., None] * p["lift"][0] + where[:, None] * p["lift"][1]  # <- coordinate_ends
    x = x + p["lift_b"]
    for k in range(OP.depth):
        y = spectral(x, p["modes"][k]) + x @ p["local"][k] + p["local_b"][k]
        x = gelu(y) if k + 1 < OP.depth else y
    return gelu(x @ p["mid"] + p["mid_b"]) @ p["last"] + p["last_b"]


def convert(sd):
    rows = range(OP.depth)
    spec = torch.stack([torch.view_as_real(sd[f"spectral.{k}.weights"]) for k in rows])
    return {
        "lift": sd["lift.weight"].t(),
        "lift_b": sd["lift.bias"],
        "modes": spec.permute(0, 4, 3, 1, 2),
        "local": torch.stack([sd[f"local.{k}.weight"][..., 0].t() for k in rows]),
        "local_b": torch.stack([sd[f"local.{k}.bias"] for k in rows]),
        "mid": sd["proj1.weight"].t(),
        "mid_b": sd["proj1.bias"],
        "last": sd["proj2.weight"][0],
        "last_b": sd["proj2.bias"],
    }


def relative_error(pred, true):
    energy = ((pred - true) ** 2).sum(1) / (true**2).sum(1)  # <- relative_reduction
    return energy.sqrt().mean()  # <- relative_reduction


def draw(gen, batch=6):
    amp = torch.randn(batch, 5, generator=gen)
    phase = 2 * math.pi * torch.outer(torch.arange(1, 6), torch.arange(OP.grid) / OP.grid)
    a = torch.einsum("bk,bkn->bn", amp, torch.sin(phase + amp[:, :1, None]))
    return a, 0.7 * torch.roll(a, 3, -1) + 0.2 * a * a


params = convert(torch.load(sys.argv[1], weights_only=True))
mom = {k: torch.zeros_like(v) for k, v in params.items()}
belief = {k: torch.zeros_like(v) for k, v in params.items()}
gen = torch.Generator().manual_seed(8)
losses = []
for t in range(OP.steps):
    a, u = draw(gen)
    params = {k: v.detach().requires_grad_() for k, v in params.items()}
    loss = relative_error(operator(params, a), u)
    grads = torch.autograd.grad(loss, list(params.values()))
    lr = OP.peak * math.cos(0.5 * math.pi * t / OP.steps) ** 2
    for k, g in zip(params, grads):
        mom[k] = OP.b1 * mom[k] + (1 - OP.b1) * g
        surprise = g - mom[k]  # <- belief
        belief[k] = OP.b2 * belief[k] + (1 - OP.b2) * (surprise.square() + OP.guard)  # <- belief
        root = torch.sqrt(belief[k] / (1 - OP.b2 ** (t + 1))) + 1e-4  # <- belief
        params[k] = params[k] - lr * (mom[k] / (1 - OP.b1 ** (t + 1))) / root  # <- belief
    losses.append(loss.item())
print(losses)
