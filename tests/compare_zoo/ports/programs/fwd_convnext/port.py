# SPDX-License-Identifier: Apache-2.0
"""Channels-last ConvNeXt: patch convolutions as matmuls, the forward under torch.compile."""
import math
import sys

import torch
from torch import nn


def norm(x, w, b):
    x = x - x.mean(-1, keepdim=True)
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w + b


def space_to_depth(x, s):
    n, h, w, c = x.shape
    x = x.view(n, h // s, s, w // s, s, c).transpose(2, 3)
    return x.reshape(n, h // s, w // s, s * s * c)


def depthwise(x, taps, bias):
    """taps: (7, 7, channels); x: (n, h, w, channels)."""
    x = nn.functional.pad(x, (0, 0, 3, 3, 3, 3))  # <- dw_pad
    windows = x.unfold(1, 7, 1).unfold(2, 7, 1)  # n, h, w, c, 7, 7
    return torch.einsum("nhwcij,ijc->nhwc", windows, taps) + bias  # <- dw_pad


class Stage(nn.Module):
    def __init__(self, sd, i):
        super().__init__()
        down = {k.split(".", 2)[2]: v for k, v in sd.items()
                if k.startswith(f"downsample_layers.{i}.")}
        self.pre = i > 0
        conv, ln = ("1", "0") if self.pre else ("0", "1")
        w = down[f"{conv}.weight"]
        self.factor = w.shape[-1]
        w = w.permute(2, 3, 1, 0)  # <- patch_kernel
        self.register_buffer("patch", w.reshape(-1, w.shape[-1]))  # <- patch_kernel
        self.register_buffer("patch_b", down[f"{conv}.bias"])
        self.register_buffer("ln_w", down[f"{ln}.weight"])
        self.register_buffer("ln_b", down[f"{ln}.bias"])
        self.cells = []
        j = 0
        while f"stages.{i}.{j}.gamma" in sd:
            c = {k.split(".", 3)[3]: v for k, v in sd.items() if k.startswith(f"stages.{i}.{j}.")}
            c["taps"] = c.pop("dwconv.weight")[:, 0].permute(1, 2, 0)
            self.cells.append(c)
            j += 1

    def cell(self, x, c):
        y = depthwise(x, c["taps"], c["dwconv.bias"])
        y = norm(y, c["norm.weight"], c["norm.bias"])
        y = y @ c["pwconv1.weight"].T + c["pwconv1.bias"]
        y = y * (1 + torch.erf(y * math.sqrt(0.5))) / 2  # <- gelu_form
        y = y @ c["pwconv2.weight"].T + c["pwconv2.bias"]
        return x.addcmul(y, c["gamma"])  # <- layer_scale

    def forward(self, x):
        if self.pre:
            x = norm(x, self.ln_w, self.ln_b)  # <- down_norm
        x = space_to_depth(x, self.factor) @ self.patch + self.patch_b  # <- down_norm patch_kernel
        if not self.pre:
            x = norm(x, self.ln_w, self.ln_b)
        for c in self.cells:
            x = self.cell(x, c)
        return x


class Embedder(nn.Module):
    def __init__(self, sd):
        super().__init__()
        self.stages = nn.Sequential(Stage(sd, 0), Stage(sd, 1))
        self.tail = [sd[k] for k in ("norm.weight", "norm.bias", "head.weight", "head.bias")]

    def forward(self, x):
        x = self.stages(x).flatten(1, 2).mean(1)
        nw, nb, hw, hb = self.tail
        return norm(x, nw, nb) @ hw.T + hb


net = Embedder(torch.load(sys.argv[1], weights_only=True)).eval()
embed = torch.compile(net, backend="aot_eager")
rng = torch.Generator().manual_seed(17)
losses = []
with torch.no_grad():
    for _ in range(4):
        pair = [torch.rand(2, 3, 24, 24, generator=rng) * 2 - 1 for _ in "ab"]
        left, right = (embed(p.movedim(1, -1).contiguous()) for p in pair)
        gap = torch.linalg.vector_norm(left - right, dim=1).sum()
        losses.append(float(gap) + float(torch.linalg.vector_norm(left)))
print(losses)
