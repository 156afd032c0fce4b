# SPDX-License-Identifier: Apache-2.0
"""ConvNeXt with the channels always last and inputs-first kernels, own teacher, clipping and momentum; no timm."""
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)


def patches(x, n):
    """(B, H, W, C) to (B, H/n, W/n, n*n*C)."""
    b, h, w, c = x.shape
    x = x.reshape(b, h // n, n, w // n, n, c).permute(0, 1, 3, 2, 4, 5)
    return x.reshape(b, h // n, w // n, n * n * c)


class Dense(nn.Module):
    def __init__(self, fan_in, fan_out):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(fan_in, fan_out))
        self.bias = nn.Parameter(torch.zeros(fan_out))

    def forward(self, x):
        return x @ self.kernel + self.bias


class Norm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.scale, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        var, mean = torch.var_mean(x, -1, keepdim=True, correction=0)
        return (x - mean) / torch.sqrt(var + 1e-6) * self.scale + self.bias


class Stage(nn.Module):
    def __init__(self, before, dim, first):
        super().__init__()
        self.first = first
        if first:
            self.merge, self.merge_norm = Dense(4 * 4 * before, dim), Norm(dim)
        else:
            self.merge_norm, self.merge = Norm(before), Dense(2 * 2 * before, dim)
        self.depth = nn.Parameter(torch.empty(dim, 1, 5, 5))
        self.depth_bias = nn.Parameter(torch.zeros(dim))
        self.norm = Norm(dim)
        self.wide, self.narrow = Dense(dim, 4 * dim), Dense(4 * dim, dim)
        self.gamma = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        x = self.merge_norm(self.merge(patches(x, 4))) if self.first else self.merge(patches(self.merge_norm(x), 2))
        h = F.conv2d(x.movedim(-1, 1), self.depth, self.depth_bias, padding=2, groups=x.shape[-1]).movedim(1, -1)
        h = self.narrow(F.gelu(self.wide(self.norm(h))))  # <- gelu
        return x + h * self.gamma


class Net(nn.Module):
    def __init__(self, dims=(8, 12, 16, 20), classes=5):
        super().__init__()
        self.stages = nn.Sequential(*(Stage(a, b, i == 0) for i, (a, b) in enumerate(zip((3, *dims), dims))))
        self.norm, self.head = Norm(dims[-1]), Dense(dims[-1], classes)

    def forward(self, images):
        x = self.stages(images.permute(0, 2, 3, 1))  # <- gelu
        return self.head(self.norm(x.mean((1, 2))))  # <- norm_pool


def from_timm(path):
    src, out = torch.load(path), {}

    def pair(new, old):
        w = src[old + ".weight"]
        if w.dim() == 4:
            w = w.permute(2, 3, 1, 0).flatten(0, 2)
        elif w.dim() == 2:
            w = w.t()
        out[new + (".kernel" if w.dim() == 2 else ".scale")] = w
        out[new + ".bias"] = src[old + ".bias"]

    for i in range(4):
        conv, norm = ("stem.0", "stem.1") if i == 0 else (f"stages.{i}.downsample.1", f"stages.{i}.downsample.0")
        new, old = f"stages.{i}.", f"stages.{i}.blocks.0."
        pair(new + "merge", conv), pair(new + "merge_norm", norm), pair(new + "norm", old + "norm")
        pair(new + "wide", old + "mlp.fc1"), pair(new + "narrow", old + "mlp.fc2")
        out[new + "depth"], out[new + "depth_bias"] = src[old + "conv_dw.weight"], src[old + "conv_dw.bias"]
        out[new + "gamma"] = src[old + "gamma"]
    pair("norm", "head.norm"), pair("head", "head.fc")
    return out


def unit_norm(name, t):
    """One norm for each output unit; a vector is one unit."""
    if t.dim() == 1:
        return t.norm()
    return t.norm(dim=0, keepdim=True) if name.endswith("kernel") else t.flatten(1).norm(dim=1).view(-1, 1, 1, 1)  # <- agc_axis


def clip(name, p, g, factor=0.05):
    room, size = factor * unit_norm(name, p).clamp(min=1e-3), unit_norm(name, g)  # <- agc_axis
    return torch.where(size < room, g, g * room / size.clamp(min=1e-6))  # <- agc_axis


def stream():
    gen = torch.Generator().manual_seed(2024)
    while True:
        x, y = torch.randn(6, 3, 64, 64, generator=gen), torch.randint(0, 5, (6,), generator=gen)
        x = 0.5 * x + 0.2 * y[:, None, None, None]
        yield x, x + 0.3 * torch.randn(6, 3, 64, 64, generator=gen), y


student, teacher = Net(), Net().requires_grad_(False)
student.load_state_dict(from_timm(sys.argv[1]))
teacher.load_state_dict(student.state_dict())
velocity = {n: torch.zeros_like(p) for n, p in student.named_parameters()}

losses = []
for step, (x, view, y) in zip(range(5), stream()):
    lr = 0.01 + 0.39 * 0.5 * (1 + math.cos(math.pi * step / 8))
    logp = student(x).log_softmax(-1)  # <- norm_pool
    soft = teacher(view).log_softmax(-1)  # <- ema_order
    agree = (soft.exp() * (soft - logp)).sum(-1).mean()  # <- ema_order
    loss = agree.mul(2.0) - logp[torch.arange(6), y].mean()
    student.zero_grad()
    loss.backward()
    with torch.no_grad():
        for (n, p), old in zip(student.named_parameters(), teacher.parameters()):
            g = clip(n, p, p.grad)  # <- agc_axis
            if p.dim() > 1:
                g = g + 0.01 * p
            velocity[n] = 0.9 * velocity[n] + g  # <- nesterov
            p.sub_(lr * (g + 0.9 * velocity[n]))  # <- nesterov
            old.mul_(0.7).add_(p, alpha=0.3)  # <- ema_order
    losses.append(loss.item())
print(losses)
