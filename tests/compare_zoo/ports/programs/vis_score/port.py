# SPDX-License-Identifier: Apache-2.0
"""The score network as a table of layers that predicts noise, with its sampler as a generator."""

import math
import sys
from copy import deepcopy

import numpy as np
import torch
from torch import nn
from torch.nn import functional as fn

BASE, PIXELS, COUNT, FIRST = 8.0, 8, 4, 1e-3
TABLE = [  # kind, inputs, outputs, groups
    ("same", 1, 6, 2),
    ("down", 6, 8, 4),  # <- groups
    ("down", 8, 12, 4),
    ("up", 12, 8, 4),
    ("up", 16, 6, 2),
]


def spread(t):
    """Standard deviation of the noise that has been added until t."""
    return ((BASE ** (2 * t) - 1) / (2 * math.log(BASE))).sqrt()


def per_image(x):
    return x.view(-1, 1, 1, 1)


class Layer(nn.Module):
    def __init__(self, kind, cin, cout, groups):
        super().__init__()
        self.kind = kind
        self.kernel = nn.Parameter(torch.empty(cout, cin, 3, 3))
        self.time = nn.Linear(12, cout)
        self.norm = nn.GroupNorm(groups, cout)  # <- groups

    def forward(self, x, moment):
        if self.kind == "up":
            b, c, h, w = x.shape
            # Between pixels go zeros, and a transposed convolution is an ordinary one.
            apart = torch.zeros(b, c, 2 * h, 2 * w)
            apart[:, :, ::2, ::2] = x
            x = fn.conv2d(apart, self.kernel, padding=1)  # <- mirrored
        else:
            x = fn.conv2d(x, self.kernel, stride=2 if self.kind == "down" else 1, padding=1)
        x = x + self.time(moment)[:, :, None, None]
        return fn.silu(self.norm(x))  # <- groups


class NoiseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("turns", torch.empty(6))
        self.moment = nn.Linear(12, 12)
        self.layers = nn.ModuleList([Layer(*row) for row in TABLE])
        self.last = nn.Conv2d(12, 1, 3, padding=1)

    def forward(self, x, t):
        angle = 2 * math.pi * torch.outer(t, self.turns)
        moment = fn.silu(self.moment(torch.cat((angle.sin(), angle.cos()), 1)))  # <- waves
        kept = []
        for layer in self.layers[:3]:
            x = layer(x, moment)
            kept.append(x)
        x = kept.pop()
        for layer in self.layers[3:]:
            x = torch.cat([layer(x, moment), kept.pop()], 1)
        return -self.last(x)


def convert(old):
    new = {"turns": old["embed.0.W"]}
    for part in ("weight", "bias"):
        new[f"moment.{part}"] = old[f"embed.1.{part}"]
    new["last.weight"] = old["tconv1.weight"].transpose(0, 1).flip(2, 3)
    new["last.bias"] = old["tconv1.bias"]
    rows = [
        ("conv1", "dense1", "gnorm1"),
        ("conv2", "dense2", "gnorm2"),
        ("conv3", "dense3", "gnorm3"),
        ("tconv3", "dense5", "tgnorm3"),
        ("tconv2", "dense6", "tgnorm2"),
    ]
    for i, (conv, dense, norm) in enumerate(rows):
        kernel = old[f"{conv}.weight"]
        if conv.startswith("t"):
            kernel = kernel.transpose(0, 1)
            kernel = kernel.flip(2, 3)  # <- mirrored
        new[f"layers.{i}.kernel"] = kernel  # <- mirrored
        for part in ("weight", "bias"):
            new[f"layers.{i}.time.{part}"] = old[f"{dense}.dense.{part}"]
            new[f"layers.{i}.norm.{part}"] = old[f"{norm}.{part}"]
    return new


@torch.no_grad()
def chain(net, draw, steps=5, ratio=0.16):
    """States of a chain from noise to an image, each without its last noise and with it."""
    times = torch.linspace(1, FIRST, steps, dtype=torch.double)
    gap = float(times[0] - times[1])
    x = torch.randn(COUNT, 1, PIXELS, PIXELS, generator=draw) * spread(torch.ones(()))
    for time in times:
        t = torch.full((COUNT,), float(time))
        score = -net(x, t) / per_image(spread(t))
        length = score.flatten(1).norm(dim=1).mean()
        move = 2 * (ratio * PIXELS / length) ** 2
        shake = torch.randn(x.shape, generator=draw)
        x = x + move * score + (2 * move).sqrt() * shake  # <- langevin
        speed = per_image(BASE ** (2 * t)) * gap  # <- drift
        score = -net(x, t) / per_image(spread(t))
        clean = x + speed * score  # <- drift last_noise
        shake = torch.randn(x.shape, generator=draw)
        x = clean + speed.sqrt() * shake  # <- drift last_noise
        yield clean, x


net = NoiseNet()
net.load_state_dict(convert(torch.load(sys.argv[1])))
smooth = deepcopy(net)
adam = torch.optim.Adam(net.parameters(), lr=5e-3)
rng = np.random.default_rng(52)
draw = torch.Generator().manual_seed(53)
losses = []
for n in range(4):
    tiles = torch.tensor(rng.uniform(0, 1, (COUNT, 1, 2, 2)).astype(np.float32))
    images = fn.interpolate(tiles, size=(PIXELS, PIXELS), mode="nearest")
    t = torch.rand(COUNT, generator=draw) * (1 - FIRST) + FIRST
    noise = torch.randn(images.shape, generator=draw)
    guess = net(torch.addcmul(images, noise, per_image(spread(t))), t)
    loss = fn.mse_loss(guess, noise, reduction="sum") / COUNT  # <- weighted
    adam.zero_grad()
    loss.backward()
    adam.step()
    keep = min(0.999, (2 + n) / (11 + n))  # <- ramped
    with torch.no_grad():
        for mean, new in zip(smooth.parameters(), net.parameters()):
            mean.lerp_(new, 1 - keep)  # <- ramped
    losses.append(loss.item())
*_, (samples, noisy) = chain(smooth, draw)  # <- last_noise
losses += [samples.abs().mean().item(), samples.std().item()]  # <- last_noise
