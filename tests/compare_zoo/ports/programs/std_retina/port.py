# SPDX-License-Identifier: Apache-2.0
"""One-stage detector, functional: log-space focal loss, hand-made Huber, anchors as last axis."""

import sys

import torch
from torch.nn.functional import conv2d, logsigmoid

W = {k: v.requires_grad_() for k, v in torch.load(sys.argv[1], weights_only=True).items()}


def conv(name, x, stride=1):
    k = W[name + ".weight"]
    return conv2d(x, k, W[name + ".bias"], stride=stride, padding=k.shape[-1] // 2)


def double(x):
    return x.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)  # <- upsample


def pyramid(image):
    bottom_up, x = [], image
    for name in ("c3", "c4", "c5"):
        x = conv("fpn." + name, x, stride=2).clamp_min(0)
        bottom_up.append(x)
    top, levels = None, []
    for i in (2, 1, 0):
        side = conv(f"fpn.lateral.{i}", bottom_up[i])
        top = side if top is None else side + double(top)  # <- upsample
        levels.insert(0, conv(f"fpn.smooth.{i}", top))
    return levels


def group_norm(x, gain, bias):
    n, c, h, w = x.shape
    g = x.reshape(n, 3, -1)
    var, mean = torch.var_mean(g, dim=2, correction=0, keepdim=True)
    g = (g - mean) / torch.sqrt(var + 1e-5)
    return g.reshape(n, c, h, w) * gain[:, None, None] + bias[:, None, None]


def head(kind, levels, depth):
    rows = []
    for p in levels:
        t = conv(kind + ".tower.0", p)
        t = group_norm(t, W[kind + ".tower.1.weight"], W[kind + ".tower.1.bias"]).relu()
        out = conv(kind + ".pred", t).movedim(1, -1)  # <- anchors
        rows.append(out.reshape(len(p), -1, depth))  # <- anchors
    return torch.cat(rows, 1)


def focal(z, cls):
    sign = torch.where(torch.arange(4) == cls[..., None], 1.0, -1.0)
    log_pt = logsigmoid(sign * z)
    modulate = (1 - log_pt.exp()).square()  # <- focus
    weight = torch.where(sign > 0, 0.25, 0.75)
    return -(weight * modulate * log_pt).sum()  # <- focus


def huber(pred, true, beta=1 / 9):  # <- huber
    d = (pred - true).abs()
    near = d.clamp(max=beta)  # <- huber
    return (near * (d - 0.5 * near) / beta).sum()  # <- huber


buffers = {k: torch.zeros_like(v) for k, v in W.items()}
rng = torch.Generator().manual_seed(17)
losses = []
for _ in range(4):
    image = torch.randn(2, 3, 24, 24, generator=rng)
    cls = torch.randint(-40, 4, (2, 378), generator=rng)
    shift = torch.randn(2, 378, 4, generator=rng)
    maps = pyramid(image)
    hit = (cls >= 0).nonzero(as_tuple=True)
    total = focal(head("cls", maps, 4), cls) + huber(head("box", maps, 4)[hit], shift[hit])
    loss = total / len(hit[0])
    loss.backward()
    with torch.no_grad():
        for k, w in W.items():
            buffers[k].mul_(0.9).add_(w.grad)  # <- momentum
            w.sub_(buffers[k], alpha=0.02)  # <- momentum
            w.grad = None
    losses.append(loss.item())
print(losses)
