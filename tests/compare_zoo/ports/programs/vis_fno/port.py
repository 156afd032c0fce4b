# SPDX-License-Identifier: Apache-2.0
"""The Fourier operator without complex numbers, for hardware that has none: the few modes that are
kept are products with a table of cosines and sines, and channels come last.
"""

import math
import sys

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear

POINTS, SAMPLES, PER_STEP = 24, 12, 4
MODES, WIDTH, LAYERS = 5, 6, 3


def tables(points: int, modes: int) -> tuple[Tensor, Tensor, Tensor]:
    angle = 2 * math.pi * torch.outer(torch.arange(modes), torch.arange(points)).double() / points
    weight = torch.full((modes, 1), 2.0 / points, dtype=torch.double)  # <- doubled
    weight[0] /= 2  # <- doubled
    return angle.cos().float(), -angle.sin().float(), weight.float()


class Spectral(nn.Module):
    def __init__(self, width: int, modes: int):
        super().__init__()
        self.real = nn.Parameter(torch.empty(modes, width, width))
        self.imag = nn.Parameter(torch.empty(modes, width, width))
        cos, sin, weight = tables(POINTS, modes)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.register_buffer("weight", weight, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        re = (self.cos @ x).transpose(0, 1)
        im = (self.sin @ x).transpose(0, 1)
        new_re = re @ self.real - im @ self.imag  # <- product
        new_im = re @ self.imag + im @ self.real  # <- product
        back_re = (self.weight * self.cos).T @ new_re.transpose(0, 1)  # <- doubled
        back_im = (self.weight * self.sin).T @ new_im.transpose(0, 1)  # <- doubled
        return back_re + back_im  # <- doubled


class Operator(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift = nn.Linear(2, WIDTH)
        self.spectral = nn.ModuleList([Spectral(WIDTH, MODES) for _ in range(LAYERS)])
        self.local = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])
        self.project = nn.Sequential(nn.Linear(WIDTH, 16), nn.GELU(), nn.Linear(16, 1))

    def forward(self, state: Tensor) -> Tensor:
        place = torch.arange(POINTS) / (POINTS - 1)  # <- grid
        # One product for each column of the weights is cheaper than putting them side by side.
        x = linear(state[..., None], self.lift.weight[:, :1], self.lift.bias)
        x = x + place[:, None] * self.lift.weight[:, 1]  # <- grid
        for i in range(LAYERS):
            x = self.local[i](x) + self.spectral[i](x)  # <- activated
            if i < LAYERS - 1:
                x = gelu(x)  # <- activated
        return self.project(x).squeeze(-1)  # <- activated


def translate(old: dict[str, Tensor]) -> dict[str, Tensor]:
    new = {}
    for part in ("weight", "bias"):
        new[f"lift.{part}"] = old[f"fc0.{part}"]
        new[f"project.0.{part}"] = old[f"fc1.{part}"]
        new[f"project.2.{part}"] = old[f"fc2.{part}"]
    for i in range(LAYERS):
        kernel = old[f"conv{i}.weights1"].permute(2, 0, 1)
        new[f"spectral.{i}.real"], new[f"spectral.{i}.imag"] = kernel.real, kernel.imag
        new[f"local.{i}.weight"] = old[f"w{i}.weight"].squeeze(-1)
        new[f"local.{i}.bias"] = old[f"w{i}.bias"]
    return new


def dataset() -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(5)
    where = np.linspace(0, 2 * np.pi, POINTS, endpoint=False)
    amplitude = rng.normal(size=(SAMPLES, 4, 2)) / np.arange(1, 5)[:, None]
    phase = np.arange(1, 5)[:, None] * where
    start = amplitude[..., 0] @ np.sin(phase) + amplitude[..., 1] @ np.cos(phase) + 0.3
    end = np.roll(start, 3, axis=1) * 0.6 + 0.2 * start**2
    return torch.from_numpy(start.astype(np.float32)), torch.from_numpy(end.astype(np.float32))


def relative_error(guess: Tensor, truth: Tensor) -> Tensor:
    return ((guess - truth).square().sum(-1) / truth.square().sum(-1)).sqrt().sum()


start, end = dataset()
(start_std, start_mean), (end_std, end_mean) = (
    torch.std_mean(t, dim=0, correction=1)  # <- deviation
    for t in (start, end)
)
start = (start - start_mean) / (start_std + 1e-5)  # <- deviation
net = Operator()
net.load_state_dict(translate(torch.load(sys.argv[1])))
params = list(net.parameters())
first = [torch.zeros_like(p) for p in params]
second = [torch.zeros_like(p) for p in params]
losses = []
for step in range(6):
    rows = torch.arange(PER_STEP) + step * PER_STEP % SAMPLES
    guess = net(start[rows]) * (end_std + 1e-5) + end_mean  # <- deviation
    loss = relative_error(guess, end[rows])
    losses.append(float(loss.detach()))
    grads = torch.autograd.grad(loss, params)
    rate = 4e-3 * 0.5 ** (step // 2)  # <- halving
    with torch.no_grad():
        for p, g, m, v in zip(params, grads, first, second):
            g.add_(p, alpha=1e-3)  # <- decay
            m.lerp_(g, 0.1)  # <- decay
            v.lerp_(g * g, 0.001)  # <- decay
            denominator = (v / (1 - 0.999 ** (step + 1))).sqrt() + 1e-8
            p.sub_(rate / (1 - 0.9 ** (step + 1)) * m / denominator)  # <- halving decay
