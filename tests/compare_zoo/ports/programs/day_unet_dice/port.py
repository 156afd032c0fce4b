# SPDX-License-Identifier: Apache-2.0
"""The U-Net with functions for what has no weights and the losses written out."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as fn

PIXELS, COUNT = 16, 3


class ConvNorm(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, padding="same", bias=False)
        self.gain = nn.Parameter(torch.ones(cout))
        self.bias = nn.Parameter(torch.zeros(cout))

    def forward(self, x):
        x = self.conv(x)
        groups = x.unflatten(1, (2, -1))
        var, mean = torch.var_mean(groups, dim=(2, 3, 4), keepdim=True, correction=0)
        x = ((groups - mean) * torch.rsqrt(var + 1e-5)).flatten(1, 2)
        x = x * self.gain[:, None, None] + self.bias[:, None, None]
        return torch.where(x > 0, x, 0.1 * x)  # <- slope


def stage(cin, cout):
    return nn.Sequential(ConvNorm(cin, cout), ConvNorm(cout, cout))


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.ModuleList([stage(1, 4), stage(4, 8), stage(8, 8)])
        self.decode = nn.ModuleList([stage(16, 4), stage(8, 4)])
        self.last = nn.Conv2d(4, 1, 1)

    def forward(self, x):
        high = self.encode[0](x)
        middle = self.encode[1](fn.max_pool2d(high, 2))
        low = self.encode[2](fn.max_pool2d(middle, 2))  # <- pooling
        x = self.decode[0](self.joined(low, middle))
        x = self.decode[1](self.joined(x, high))
        return self.last(x)

    def joined(self, x, skip):
        size = skip.shape[-2:]
        x = fn.interpolate(x, size=size, mode="bilinear", align_corners=True)  # <- corners
        return torch.cat((skip, x), 1)  # <- skip


def renamed(state):
    stages = {
        "encode.0": "inc.double_conv",
        "encode.1": "down1.1.double_conv",
        "encode.2": "down2.1.double_conv",
        "decode.0": "up1.conv.double_conv",
        "decode.1": "up2.conv.double_conv",
    }
    new = {"last.weight": state["outc.weight"], "last.bias": state["outc.bias"]}
    for ours, theirs in stages.items():
        for i in range(2):
            new[f"{ours}.{i}.conv.weight"] = state[f"{theirs}.{3 * i}.weight"]
            new[f"{ours}.{i}.gain"] = state[f"{theirs}.{3 * i + 1}.weight"]
            new[f"{ours}.{i}.bias"] = state[f"{theirs}.{3 * i + 1}.bias"]
    return new


def soft_dice(logits, wanted, smooth=1.0):
    p = logits.sigmoid()  # <- sigmoid
    overlap = (p * wanted).sum((1, 2, 3))
    sizes = p.sum((1, 2, 3)) + wanted.sum((1, 2, 3))
    return (1 - (2 * overlap + smooth) / (sizes + smooth)).mean()  # <- dice sigmoid


def cross_entropy(logits, wanted):
    return (logits.clamp(min=0) - logits * wanted + torch.log1p(torch.exp(-logits.abs()))).mean()


net = Segmenter()
net.load_state_dict(renamed(torch.load(sys.argv[1])))
adam = torch.optim.Adam(net.parameters(), lr=1e-2)
rng = np.random.default_rng(62)
losses = []
for _ in range(3):
    wanted = torch.zeros(COUNT, 1, PIXELS, PIXELS)
    for one in wanted:
        top, left = rng.integers(0, PIXELS - 6, 2)
        one[0, top : top + 6, left : left + 5] = 1
    noise = rng.normal(scale=0.5, size=wanted.shape).astype(np.float32)
    adam.zero_grad()
    scores = net(wanted + torch.tensor(noise))
    loss = cross_entropy(scores, wanted) + soft_dice(scores, wanted)
    loss.backward()
    adam.step()
    losses.append(loss.item())
