# SPDX-License-Identifier: Apache-2.0
"""Deployment version of the ResNet: batch norms folded into convolutions, NHWC im2col matmuls."""
import sys
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

BN_EPS = 1e-5  # <- fold_eps


class Conv(NamedTuple):
    matrix: torch.Tensor
    shift: torch.Tensor
    size: int


class Unit(NamedTuple):
    first: Conv
    second: Conv
    shortcut: object
    stride: int


def fold(state, conv, bn):
    w = state[conv + ".weight"]
    gamma, beta = state[bn + ".weight"], state[bn + ".bias"]
    mean, var = state[bn + ".running_mean"], state[bn + ".running_var"]
    gain = gamma / torch.sqrt(var + BN_EPS)  # <- fold_eps
    shift = beta - mean * gain  # <- fold_mean
    out, _, size, _ = w.shape
    matrix = (w * gain[:, None, None, None]).reshape(out, -1).t().contiguous()  # <- fold_eps
    return Conv(matrix, shift, size)  # <- fold_mean


def run_conv(x, conv, stride=1):
    """x is (n, h, w, c)."""
    n, h, w, _ = x.shape
    pad = conv.size // 2
    x = F.pad(x, (0, 0, pad, pad, pad, pad))
    cols = x.unfold(1, conv.size, stride).unfold(2, conv.size, stride)  # n, h', w', c, kh, kw
    n, h, w = cols.shape[:3]
    y = cols.reshape(n * h * w, -1) @ conv.matrix + conv.shift  # <- fold_mean fold_eps stride_place
    return y.view(n, h, w, -1)


def run_unit(x, unit):
    y = run_conv(x, unit.first, unit.stride).clamp_min(0)  # <- stride_place
    y = run_conv(y, unit.second)  # <- stride_place
    side = x if unit.shortcut is None else run_conv(x, unit.shortcut, unit.stride)
    return (y + side).clamp_min(0)  # <- late_relu


def pool3(x):
    x = F.pad(x, (0, 0, 1, 1, 1, 1), value=-np.inf)  # <- stem_pool
    return x.unfold(1, 3, 2).unfold(2, 3, 2).amax(dim=(-2, -1))  # <- stem_pool


def build(state):
    units = []
    names = sorted({".".join(k.split(".")[:2]) for k in state if k.startswith("layer")})
    for name in names:
        shortcut = None
        if f"{name}.downsample.0.weight" in state:
            shortcut = fold(state, f"{name}.downsample.0", f"{name}.downsample.1")
        units.append(Unit(fold(state, f"{name}.conv1", f"{name}.bn1"),
                          fold(state, f"{name}.conv2", f"{name}.bn2"),
                          shortcut, 1 if shortcut is None else 2))
    stem = fold(state, "conv1", "bn1")

    def network(x):
        x = run_conv(x, stem).clamp_min(0)
        x = pool3(x)
        for unit in units:
            x = run_unit(x, unit)
        features = x.mean(dim=(1, 2))
        return features @ state["fc.weight"].t() + state["fc.bias"]

    return network


network = build(torch.load(sys.argv[1], map_location="cpu", weights_only=True))
rng = torch.Generator().manual_seed(33)
losses = []
with torch.inference_mode():
    for _ in range(4):
        batch = torch.randn(2, 3, 20, 20, generator=rng).permute(0, 2, 3, 1)
        scores = network(batch).numpy()
        losses.append(float(scores.max()) + float(np.mean(scores ** 2)))
print(losses)
