# SPDX-License-Identifier: Apache-2.0
"""The forecaster one series at a time: (time, channel) arrays cut to their length, a product for
each tap, gradients accumulated over three micro-batches, AdamW and clipping written out.
"""

import sys
from itertools import pairwise

import torch
from torch import nn

MICRO, TAPS = 2, 3


class Causal(nn.Module):
    def __init__(self, n_in, n_out, dilation):
        super().__init__()
        self.direction = nn.Parameter(torch.empty(TAPS, n_in, n_out))
        self.magnitude = nn.Parameter(torch.empty(n_out))
        self.offset = nn.Parameter(torch.empty(n_out))
        self.dilation = dilation

    def forward(self, x):
        length = self.direction.square().sum((0, 1)).sqrt()
        kernel = self.direction * (self.magnitude / length)
        out = self.offset
        for tap in range(TAPS):
            delay = min(tap * self.dilation, len(x))  # <- dilation
            late = torch.cat((x.new_zeros(delay, x.shape[1]), x[: len(x) - delay]))  # <- dilation
            out = out + late @ kernel[tap]  # <- taps dilation
        return torch.relu(out)


class Stage(nn.Module):
    def __init__(self, n_in, n_out, dilation):
        super().__init__()
        self.first = Causal(n_in, n_out, dilation)
        self.second = Causal(n_out, n_out, dilation)
        self.skip = nn.Linear(n_in, n_out) if n_in != n_out else nn.Identity()

    def forward(self, x):
        return torch.relu(self.skip(x) + self.second(self.first(x)))


class Forecaster(nn.Module):
    def __init__(self, sizes=(4, 10, 10, 12)):
        super().__init__()
        self.stages = nn.ModuleList()
        for n, (n_in, n_out) in enumerate(pairwise(sizes)):
            self.stages.append(Stage(n_in, n_out, 2**n))  # <- dilation
        self.head = nn.Linear(sizes[-1], sizes[0])

    def forward(self, x):
        for stage in self.stages:
            x = stage(x)
        return self.head(x)


@torch.no_grad()
def take_over(model, theirs):
    for n, stage in enumerate(model.stages):
        for conv, causal in (("conv1", stage.first), ("conv2", stage.second)):
            here = f"network.{n}.{conv}"
            v = theirs[f"{here}.parametrizations.weight.original1"]
            causal.direction.copy_(v.permute(2, 1, 0).flip(0))  # <- taps
            causal.magnitude.copy_(theirs[f"{here}.parametrizations.weight.original0"].flatten())
            causal.offset.copy_(theirs[f"{here}.bias"])
        if f"network.{n}.downsample.weight" in theirs:
            stage.skip.weight.copy_(theirs[f"network.{n}.downsample.weight"].squeeze(-1))
            stage.skip.bias.copy_(theirs[f"network.{n}.downsample.bias"])
    model.head.load_state_dict({k: theirs[f"head.{k}"] for k in ("weight", "bias")})


def read(rng):
    noise = 0.3 * torch.randn(6, 17, 4, generator=rng)
    phase = 6 * torch.rand(6, 1, 4, generator=rng)
    series = 2 * torch.sin(0.7 * torch.arange(17.0)[:, None] + phase) + noise
    lengths = torch.randint(5, 17, (6,), generator=rng).tolist()
    return [x[: n + 1] for x, n in zip(series, lengths, strict=True)]


def huber(error):
    size = error.abs()
    return torch.where(size < 0.5, error.square(), size - 0.25)


model = Forecaster()
take_over(model, torch.load(sys.argv[1]))
weights = list(model.parameters())
state = [(torch.zeros_like(w), torch.zeros_like(w)) for w in weights]
rng = torch.Generator().manual_seed(32)
losses = []
for t in range(1, 5):
    data = read(rng)
    steps = sum(len(x) - 1 for x in data)
    grads, whole = [torch.zeros_like(w) for w in weights], 0.0
    for start in range(0, len(data), MICRO):
        micro = data[start : start + MICRO]
        errors = torch.cat([huber(model(x[:-1]) - x[1:]).mean(-1) for x in micro])
        part = errors.sum() / steps  # <- averaged
        for total, g in zip(grads, torch.autograd.grad(part, weights), strict=True):
            total.add_(g)  # <- averaged
        whole += part.item()
    norm = sum(g.square().sum() for g in grads).sqrt()  # <- clipped
    shrink = (0.5 / (norm + 1e-6)).clamp(max=1.0)  # <- clipped
    with torch.no_grad():
        for w, g, (m, v) in zip(weights, grads, state, strict=True):
            g.mul_(shrink)  # <- clipped decoupled
            w.mul_(1 - 0.02 * 0.2)  # <- decoupled
            m.mul_(0.9).add_(0.1 * g)
            v.mul_(0.999).add_(0.001 * g**2)
            root = (v / (1 - 0.999**t)).sqrt()
            w.sub_(0.02 / (1 - 0.9**t) * m / (root + 1e-3))  # <- decoupled clipped
    losses.append(whole)
