# SPDX-License-Identifier: Apache-2.0
"""The same network as functions over a dictionary of arrays, channels last: pointwise convolutions
as products of matrices, depthwise ones tap by tap, batch norm, loss and RMSprop written out.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F

NUM_CLASSES, NUM_IMAGES, SIZE = 5, 6, 16
STAGES = (  # name, kernel, stride, has an expansion, adds its input
    ("blocks.0", 3, 1, False, True),
    ("blocks.1", 3, 2, True, False),
    ("blocks.2", 5, 1, True, True),
)


def batch_norm(p, name, x):
    mu = x.mean(dim=(0, 1, 2))
    var = ((x - mu) ** 2).mean(dim=(0, 1, 2))
    normed = (x - mu) * torch.rsqrt(var + 1e-3)  # <- eps
    return normed * p[name + "/gamma"] + p[name + "/beta"]


def windows(x, kernel, stride):
    """Yields for each tap of a kernel the pixels that it sees."""
    size = (x.shape[1] - 1) // stride + 1
    low, high = kernel // 2, kernel // 2  # <- padding
    padded = F.pad(x, (0, 0, low, high, low, high))  # <- padding
    last = (size - 1) * stride + 1
    for i in range(kernel):
        for j in range(kernel):
            yield i, j, padded[:, i : i + last : stride, j : j + last : stride]


def full_conv(p, name, x, kernel, stride):
    taps = [part for _, _, part in windows(x, kernel, stride)]
    return torch.cat(taps, dim=-1) @ p[name + "/kernel"]  # <- padding


def depthwise_conv(p, name, x, kernel, stride):
    weight = p[name + "/kernel"]
    total = 0.0
    for i, j, part in windows(x, kernel, stride):
        total = total + part * weight[i, j]  # <- kernel padding
    return total


def squeeze_excite(p, name, x):
    pooled = x.mean(dim=(1, 2))
    small = F.silu(pooled @ p[name + "/down/w"] + p[name + "/down/b"])  # <- squeeze
    logits = small @ p[name + "/up/w"] + p[name + "/up/b"]
    gates = torch.sigmoid(logits)
    return x * gates[:, None, None]


def mbconv(p, stage, x):
    name, kernel, stride, expands, adds = stage
    h = x
    if expands:
        h = F.silu(batch_norm(p, name + "/expand", h @ p[name + "/expand/kernel"]))  # <- residual
    h = depthwise_conv(p, name + "/depth", h, kernel, stride)
    h = F.silu(batch_norm(p, name + "/depth", h))
    h = squeeze_excite(p, name, h)
    h = batch_norm(p, name + "/project", h @ p[name + "/project/kernel"])
    return h + x if adds else h  # <- residual


def network(p, images):
    h = F.silu(batch_norm(p, "stem", full_conv(p, "stem", images, 3, 2)))
    for stage in STAGES:
        h = mbconv(p, stage, h)
    h = F.silu(batch_norm(p, "head", h @ p["head/kernel"]))
    return h.mean(dim=(1, 2)) @ p["fc/w"] + p["fc/b"]


def smoothed_cross_entropy(logits, labels, smoothing=0.1):
    sure = F.one_hot(labels, NUM_CLASSES) * (1 - smoothing)
    target = sure + smoothing / NUM_CLASSES  # <- smoothing
    return -(target * torch.log_softmax(logits, dim=1)).sum(dim=1).mean()  # <- smoothing


def pointwise(weight):
    return weight[:, :, 0, 0].T


def load(old):
    p = {}

    def norm(new, name):
        p[new + "/gamma"], p[new + "/beta"] = old[name + ".bn.weight"], old[name + ".bn.bias"]

    stem = old["stem.conv.weight"]
    p["stem/kernel"] = stem.permute(2, 3, 1, 0).reshape(-1, stem.shape[0])
    norm("stem", "stem")
    for name, _, _, expands, _ in STAGES:
        depth = old[name + ".depthwise.conv.weight"]
        p[name + "/depth/kernel"] = depth[:, 0].permute(1, 2, 0)  # <- kernel
        norm(name + "/depth", name + ".depthwise")
        for part in ("expand", "project") if expands else ("project",):
            p[f"{name}/{part}/kernel"] = pointwise(old[f"{name}.{part}.conv.weight"])
            norm(f"{name}/{part}", f"{name}.{part}")
        for new, part in (("down", "reduce"), ("up", "expand")):
            p[f"{name}/{new}/w"] = pointwise(old[f"{name}.se.{part}.weight"])
            p[f"{name}/{new}/b"] = old[f"{name}.se.{part}.bias"]
    p["head/kernel"] = pointwise(old["head.conv.weight"])
    norm("head", "head")
    p["fc/w"], p["fc/b"] = old["fc.weight"].T, old["fc.bias"]
    return {name: value.clone().requires_grad_() for name, value in p.items()}


class RMSProp:
    def __init__(self, values):
        self.values = values
        self.squares = [torch.zeros_like(v) for v in values]
        self.speeds = [torch.zeros_like(v) for v in values]

    @torch.no_grad()
    def update(self, gradients):
        for v, square, speed, g in zip(self.values, self.squares, self.speeds, gradients):
            slope = g + 1e-5 * v
            square.copy_(0.9 * square + 0.1 * slope**2)
            step = slope / (square.sqrt() + 1e-3)  # <- root
            speed.copy_(0.9 * speed + step)
            v.sub_(0.004 * speed)


def batches():
    rng = np.random.default_rng(4)
    raw = rng.integers(0, 256, (3, NUM_IMAGES, 3, SIZE, SIZE)).transpose(0, 1, 3, 4, 2)
    labels = torch.tensor(rng.integers(0, NUM_CLASSES, (3, NUM_IMAGES)))
    mean = torch.tensor([0.485, 0.456, 0.406])  # <- pixels
    deviation = torch.tensor([0.229, 0.224, 0.225])  # <- pixels
    scaled = torch.tensor(raw, dtype=torch.float32) / 255
    return (scaled - mean) / deviation, labels  # <- pixels


params = load(torch.load(sys.argv[1]))
optimizer = RMSProp(list(params.values()))
losses = []
for images, labels in zip(*batches()):
    loss = smoothed_cross_entropy(network(params, images), labels)
    optimizer.update(torch.autograd.grad(loss, list(params.values())))
    losses.append(loss.item())
