# SPDX-License-Identifier: Apache-2.0
"""ConvNeXt V2 in channels-first layout throughout: 1x1 convolutions for the linear layers, norms
over dimension 1, momentum and averaged weights kept by hand.
"""

import copy
import sys
from itertools import pairwise

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class ChannelNorm(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels, 1, 1))
        self.shift = nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(self, x):
        variance, mean = torch.var_mean(x, dim=1, keepdim=True, correction=0)
        return (x - mean) / torch.sqrt(variance + 1e-6) * self.scale + self.shift


class ResponseNorm(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.gamma = nn.Parameter(torch.zeros(channels, 1, 1))
        self.beta = nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(self, x):
        energy = x.square().sum(dim=(2, 3), keepdim=True).sqrt()
        share = energy / (energy.mean(dim=1, keepdim=True) + 1e-6)  # <- grn
        return x + self.gamma * x * share + self.beta  # <- grn


def block(c):
    return nn.Sequential(
        nn.Conv2d(c, c, 7, padding=3, groups=c),
        ChannelNorm(c),
        nn.Conv2d(c, 4 * c, 1),
        nn.GELU(),
        ResponseNorm(4 * c),
        nn.Conv2d(4 * c, c, 1),
    )


class Net(nn.Module):
    def __init__(self, widths=(8, 12, 16), depths=(1, 2, 1), classes=5):
        super().__init__()
        self.reduce = nn.ModuleList([nn.Sequential(nn.Conv2d(3, 8, 2, 2), ChannelNorm(8))])
        for a, b in pairwise(widths):
            self.reduce.append(nn.Sequential(ChannelNorm(a), nn.Conv2d(a, b, 2, 2)))
        self.stages = nn.ModuleList(
            nn.ModuleList(block(c) for _ in range(n)) for c, n in zip(widths, depths)
        )
        self.norm = nn.LayerNorm(widths[-1], eps=1e-6)
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x):
        for reduce, stage in zip(self.reduce, self.stages):
            x = reduce(x)
            for branch in stage:
                x = x + branch(x)  # <- residual
        return self.head(self.norm(F.adaptive_avg_pool2d(x, 1).flatten(1)))


def translated(state):
    """Names and shapes of the package in those of Net."""
    out = {}
    sides = {"dwconv": 0, "layernorm": 1, "pwconv1": 2, "grn": 4, "pwconv2": 5}
    for name, kept in state.items():
        parts = name.removeprefix("convnextv2.").split(".")
        kind, value = parts[-1], kept
        if parts[0] == "embeddings":
            where = "reduce.0." + ("0" if parts[1] == "patch_embeddings" else "1")
        elif parts[0] == "encoder" and parts[3] == "downsampling_layer":
            where = f"reduce.{parts[2]}.{parts[4]}"
        elif parts[0] == "encoder":
            where = f"stages.{parts[2]}.{parts[4]}.{sides[parts[5]]}"
            if parts[5].startswith("pwconv") and kind == "weight":
                value = value[:, :, None, None]
        else:
            where = {"layernorm": "norm", "classifier": "head"}[parts[0]]
        if where.startswith(("reduce", "stages")):
            if "grn" in parts:
                kind, value = {"weight": "gamma", "bias": "beta"}[kind], value.view(-1, 1, 1)
            elif "layernorm" in parts or ("downsampling_layer" in parts and parts[4] == "0"):
                kind, value = {"weight": "scale", "bias": "shift"}[kind], value.view(-1, 1, 1)
        out[f"{where}.{kind}"] = value
    return out


class Pixels:
    """Batches of random pictures as the data loader of the old code made them."""

    def __init__(self):
        self.rng = np.random.RandomState(5)
        self.mean = np.float32([0.485, 0.456, 0.406])[:, None, None]
        self.std = np.float32([0.229, 0.224, 0.225])[:, None, None]  # <- constants

    def pictures(self):
        raw = self.rng.randint(0, 256, (4, 3, 16, 16)).astype(np.float32)
        return torch.from_numpy((raw / np.float32(255) - self.mean) / self.std)  # <- constants

    def classes(self):
        return torch.from_numpy(self.rng.randint(0, 5, 4))


def smoothed(logits, target, amount=0.1):
    log_p = F.log_softmax(logits, dim=1)
    off = amount / logits.shape[1]  # <- smoothing
    soft = torch.full_like(log_p, off)  # <- smoothing
    soft.scatter_(1, target[:, None], 1 - amount + off)  # <- smoothing
    return -(soft * log_p).sum(1).mean()  # <- smoothing


net = Net()
net.load_state_dict(translated(torch.load(sys.argv[1])))
net = net.to(memory_format=torch.channels_last)
shadow = None
velocity = {}
data = Pixels()
losses = []
for step in range(4):
    x, y = data.pictures(), data.classes()
    x = x.contiguous(memory_format=torch.channels_last)
    loss = smoothed(net(x), y)
    net.zero_grad()
    loss.backward()
    with torch.no_grad():
        for name, p in net.named_parameters():
            v = velocity.setdefault(name, torch.zeros_like(p))
            v.mul_(0.9).add_(p.grad)
            p.sub_(0.05 * (p.grad + 0.9 * v))  # <- nesterov
        if shadow is None:
            shadow = copy.deepcopy(net)
        else:
            for kept, p in zip(shadow.parameters(), net.parameters()):
                kept.copy_(0.6 * kept + 0.4 * p)  # <- average
    losses.append(loss.item())
with torch.no_grad():
    scores = shadow.eval()(data.pictures())
    losses += torch.logsumexp(scores, 1).tolist()
