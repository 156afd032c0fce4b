# SPDX-License-Identifier: Apache-2.0
"""Clip GAN without modules: clips as (time, row, column) grids of channels, own second moments."""

import sys
from dataclasses import dataclass
from functools import partial

import torch


@dataclass
class Scaler:
    """Adam without a first moment"""

    lr: float
    decay: float = 0.9
    eps: float = 1e-2
    seen: int = 0
    power: dict = None

    def __call__(self, tree, loss):
        grads = torch.autograd.grad(loss, list(tree.values()))
        self.power = self.power or {k: torch.zeros_like(v) for k, v in tree.items()}
        self.seen += 1
        correct = 1 - self.decay**self.seen
        for (k, w), g in zip(tree.items(), grads):
            self.power[k] = self.decay * self.power[k] + (1 - self.decay) * g * g
            root = (self.power[k] / correct).sqrt()  # <- second_moment
            w.data -= self.lr * g / (root + self.eps)  # <- second_moment


def grid_conv(x, kernel, bias):
    """3 x 3 x 3, zero border; x: (n, t, h, w, c), kernel: (27, c, out)"""
    n, t, h, w, c = x.shape
    box = torch.nn.functional.pad(x, (0, 0, 1, 1, 1, 1, 1, 1))
    taps = [
        box[:, a : a + t, b : b + h, d : d + w]
        for a in range(3)
        for b in range(3)
        for d in range(3)
    ]
    return torch.einsum("knthwc,kco->nthwo", torch.stack(taps), kernel) + bias


def leaky(x):
    return 0.6 * x + 0.4 * x.abs()


def unit(x):
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) / x.shape[-1] + 1e-3)  # <- pixel_norm


def paint(p, z):
    h = (z @ p["fc"]) * (2 / z.shape[1]) ** 0.5 + p["fc_b"]  # <- equal_lr
    h = leaky(unit(h.view(len(z), -1, 2, 2, 2).movedim(1, -1)))  # <- pixel_norm
    for axis in (1, 2, 3):
        h = h.repeat_interleave(2, dim=axis)
    h = leaky(unit(grid_conv(h, p["conv"], p["conv_b"])))  # <- pixel_norm
    return torch.tanh(h @ p["rgb"] + p["rgb_b"])


def judge(p, x):
    soft = partial(torch.logaddexp, torch.zeros(()))
    h = soft(grid_conv(x, p["c1"], p["c1_b"]))
    n, t, a, b, c = h.shape
    h = h.reshape(n, t // 2, 2, a // 2, 2, b // 2, 2, c)
    h = soft(torch.einsum("ntiajbkc,ijkco->ntabo", h, p["c2"]) + p["c2_b"])
    centred = h - h.mean(0)
    spread = centred.square().mean(0).sqrt().mean()  # <- batch_spread
    h = torch.cat([h, torch.ones_like(h[..., :1]) * spread], -1)  # <- batch_spread
    return torch.tensordot(h, p["fc"], 4) + p["fc_b"]


def slope_penalty(p, real, fake, mix):
    x = torch.lerp(fake, real, mix).detach().requires_grad_()
    (slope,) = torch.autograd.grad(judge(p, x).sum(), x, create_graph=True)
    steep = slope.square().sum((1, 2, 3, 4)).sqrt()  # <- sample_norm
    return (steep - 1).square().mean()  # <- sample_norm


def kernel27(w):
    return w.permute(2, 3, 4, 1, 0).flatten(0, 2)


def restore(path):
    sd = torch.load(path, weights_only=True)
    g, c = sd["generator"], sd["critic"]
    g = {
        "fc": g["fc.weight"].T,
        "fc_b": g["fc.bias"],
        "conv": kernel27(g["conv.weight"]),
        "conv_b": g["conv.bias"],
        "rgb": g["rgb.weight"].flatten(1).T,
        "rgb_b": g["rgb.bias"],
    }
    c = {
        "c1": kernel27(c["conv1.weight"]),
        "c1_b": c["conv1.bias"],
        "c2": c["conv2.weight"].permute(2, 3, 4, 1, 0),
        "c2_b": c["conv2.bias"],
        "fc": c["fc.weight"].view(-1, 2, 2, 2).movedim(0, -1),
        "fc_b": c["fc.bias"],
    }
    return [{k: v.clone().requires_grad_() for k, v in tree.items()} for tree in (g, c)]


painter, judge_params = restore(sys.argv[1])
update_painter, update_judge = Scaler(0.005), Scaler(0.01)
gen = torch.Generator().manual_seed(3)
losses = []
for _ in range(4):
    scores = []
    for _ in range(2):
        real = torch.randn(4, 1, 4, 4, 4, generator=gen).cumsum(2).tanh().movedim(1, -1)
        z = torch.randn(4, 5, generator=gen)
        mix = torch.rand(4, 1, 1, 1, 1, generator=gen)
        fake = paint(painter, z).detach()
        r = judge(judge_params, real)
        value = judge(judge_params, fake).mean() - r.mean() + 0.01 * r.square().mean()
        value = value + 5 * slope_penalty(judge_params, real, fake, mix)
        update_judge(judge_params, value)
        scores.append(value.item())
    value = -judge(judge_params, paint(painter, torch.randn(4, 5, generator=gen))).mean()
    update_painter(painter, value)
    losses.append(sum(scores) / 2 + value.item())
print(losses)
