# SPDX-License-Identifier: Apache-2.0
"""The same network with channels first but no pooling operator: windows, one-hot places of their
maxima, transposed convolutions in the decoder, batch norm and momentum written out.
"""

import sys
from itertools import pairwise

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

KINDS, COUNT, EDGE = 5, 3, 16


class BatchNorm(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(channels, 1, 1))
        self.beta = nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(self, x):
        mean = x.mean((0, 2, 3), keepdim=True)  # <- axes
        variance = ((x - mean) ** 2).mean((0, 2, 3), keepdim=True)  # <- axes
        return (x - mean) * torch.rsqrt(variance + 1e-5) * self.gamma + self.beta  # <- eps axes


class Down(nn.Module):
    """Convolution, norm and rectifier, then the maxima of windows and their places."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.kernel = nn.Parameter(torch.zeros(outputs, inputs, 3, 3))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.norm = BatchNorm(outputs)

    def forward(self, x):
        x = F.conv2d(x, self.kernel, self.bias, padding="same")
        x = self.norm(x).clamp(min=0)
        n, c, h, w = x.shape
        windows = x.view(n, c, h // 2, 2, w // 2, 2).transpose(3, 4).flatten(4)
        largest, place = windows.max(dim=-1)
        return largest, F.one_hot(place, 4).float()  # <- corner


class Up(nn.Module):
    """Maxima back to their places, then a transposed convolution."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.kernel = nn.Parameter(torch.zeros(inputs, outputs, 3, 3))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x, place):
        n, c, h, w = x.shape
        spread = x[..., None] * place  # <- corner
        spread = spread.view(n, c, h, w, 2, 2).transpose(3, 4).reshape(n, c, 2 * h, 2 * w)
        return F.conv_transpose2d(spread, self.kernel, self.bias, padding=1)  # <- flip


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        widths = (3, 8, 12, 16)
        self.down = nn.ModuleList(Down(a, b) for a, b in pairwise(widths))
        self.up = nn.ModuleList([Up(16, 12), Up(12, 8), Up(8, KINDS)])
        self.norms = nn.ModuleList([BatchNorm(12), BatchNorm(8)])

    def forward(self, x):
        places = []
        for down in self.down:
            x, place = down(x)
            places.append(place)
        for up, norm in zip(self.up, self.norms):
            x = torch.relu(norm(up(x, places.pop())))
        return self.up[2](x, places.pop())


def load(model, old):
    new = {}
    for i, name in enumerate(["enc1", "enc2", "enc3"]):
        new[f"down.{i}.kernel"] = old[f"{name}.conv.weight"]
        new[f"down.{i}.bias"] = old[f"{name}.conv.bias"]
        new[f"down.{i}.norm.gamma"] = old[f"{name}.bn.weight"][:, None, None]
        new[f"down.{i}.norm.beta"] = old[f"{name}.bn.bias"][:, None, None]
    for i, name in enumerate(["dec3.conv", "dec2.conv", "classifier"]):
        new[f"up.{i}.kernel"] = old[f"{name}.weight"].transpose(0, 1).flip(2, 3)  # <- flip
        new[f"up.{i}.bias"] = old[f"{name}.bias"]
    for i, name in enumerate(["dec3.bn", "dec2.bn"]):
        new[f"norms.{i}.gamma"] = old[f"{name}.weight"][:, None, None]
        new[f"norms.{i}.beta"] = old[f"{name}.bias"][:, None, None]
    model.load_state_dict(new)


def make_scenes():
    rng = np.random.default_rng(21)
    pictures = rng.integers(0, 256, (3 * COUNT, 3, EDGE, EDGE))
    truth = np.zeros((3 * COUNT, EDGE, EDGE), dtype=int)
    for i in range(3 * COUNT):
        for kind in range(1, KINDS):
            (y, x), (h, w) = rng.integers(0, EDGE - 4, 2), rng.integers(2, 10, 2)
            if rng.random() < 0.6:
                truth[i, y : y + h, x : x + w] = kind
    return pictures / 255 - 0.5, truth  # <- scaled


def balance(truth):
    shares = []
    for kind in range(KINDS):
        hit = truth == kind
        having = hit.any(axis=(1, 2))
        shares.append(hit[having].mean())  # <- present
    return np.median(shares) / np.array(shares)  # <- present


def sgd(parameters, velocity, gradients):
    with torch.no_grad():
        for p, v, g in zip(parameters, velocity, gradients):
            v.mul_(0.9).add_(g + 5e-4 * p)  # <- momentum
            p.sub_(0.1 * v)  # <- momentum


pictures, truth = make_scenes()
balance_of = torch.tensor(balance(truth), dtype=torch.float32)  # <- present
pictures = torch.tensor(pictures, dtype=torch.float32)  # <- scaled
truth = torch.tensor(truth)
net = Segmenter()
load(net, torch.load(sys.argv[1]))
parameters = list(net.parameters())
velocity = [torch.zeros_like(p) for p in parameters]
losses = []
for step in range(3):
    x, y = pictures.split(COUNT)[step], truth.split(COUNT)[step]
    surprise = -net(x).log_softmax(1).gather(1, y[:, None])[:, 0]
    importance = balance_of[y]
    loss = (importance * surprise).sum() / importance.sum()  # <- weighted
    sgd(parameters, velocity, torch.autograd.grad(loss, parameters))
    losses.append(loss.item())
