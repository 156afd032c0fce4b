# SPDX-License-Identifier: Apache-2.0
"""Channels-last functional rewrite: convolutions as patch matmuls, all weights in one flat
vector."""
import math
import sys

import torch

state = torch.load(sys.argv[1], weights_only=True)


class Layout:
    """Where every tensor lives in the flat vector."""

    def __init__(self):
        self.slots, self.chunks, self.n, self.decay = {}, [], 0, []

    def put(self, name, value, wd):
        self.slots[name] = (self.n, tuple(value.shape))
        self.chunks.append(value.reshape(-1))
        self.decay.append(torch.full((value.numel(),), wd))
        self.n += value.numel()

    def view(self, flat, name):
        at, shape = self.slots[name]
        return flat[at:at + math.prod(shape)].view(shape)


lay = Layout()
lay.put("head.kernel", state["fc.weight"].t().contiguous(), 5e-3)
lay.put("head.bias", state["fc.bias"], 0.0)
BLOCKS = {"stem": ("stem", "bn"), "a1": ("layer1.conv1", "layer1.bn1"),
          "a2": ("layer1.conv2", "layer1.bn2"),
          "b1": ("layer2.conv1", "layer2.bn1"), "b2": ("layer2.conv2", "layer2.bn2"),
          "bs": ("layer2.downsample.0", "layer2.downsample.1")}
for mine, (conv, norm) in BLOCKS.items():
    w = state[conv + ".weight"]                       # O I kh kw -> (kh kw I) O
    lay.put(mine + ".k", w.permute(2, 3, 1, 0).reshape(-1, w.shape[0]), 5e-3)
    lay.put(mine + ".scale", state[norm + ".weight"] - 1.0, 0.0)
    lay.put(mine + ".shift", state[norm + ".bias"], 0.0)
theta = torch.cat(lay.chunks).requires_grad_()
decay = torch.cat(lay.decay)


def conv_bn(flat, name, x, k, stride):
    """x: N H W C."""
    pad = k // 2
    n, h, w, c = x.shape
    xp = torch.zeros(n, h + 2 * pad, w + 2 * pad, c)
    xp[:, pad:pad + h, pad:pad + w] = x
    patches = xp.unfold(1, k, stride).unfold(2, k, stride)   # N H' W' C kh kw
    ho, wo = patches.shape[1:3]
    cols = patches.permute(0, 1, 2, 4, 5, 3).reshape(n * ho * wo, -1)
    z = cols @ lay.view(flat, name + ".k")
    mu = z.mean(0)
    d = z - mu
    inv = (d.square().mean(0) + 1e-5).rsqrt()  # <- batch_var
    z = (d * inv * (lay.view(flat, name + ".scale") + 1.0)  # <- batch_var
         + lay.view(flat, name + ".shift"))
    return z.view(n, ho, wo, -1)


def forward(flat, x):
    h = conv_bn(flat, "stem", x, 3, 1).clamp_min(0)
    h = (conv_bn(flat, "a2", conv_bn(flat, "a1", h, 3, 1).clamp_min(0), 3, 1)  # <- relu_order
         + h).clamp_min(0)  # <- relu_order
    short = conv_bn(flat, "bs", h, 1, 2)
    h = (conv_bn(flat, "b2", conv_bn(flat, "b1", h, 3, 2).clamp_min(0), 3, 1) + short).clamp_min(0)
    pooled = h.flatten(1, 2).sum(1) / (h.shape[1] * h.shape[2])
    return pooled @ lay.view(flat, "head.kernel") + lay.view(flat, "head.bias")


def smoothed_nll(logits, y, eps=0.1):
    # (1-eps) * nll + eps * mean over classes, written with one logsumexp
    picked = logits[torch.arange(len(y)), y]
    return (logits.logsumexp(1) - (1 - eps) * picked  # <- smooth_spread
            - eps * logits.mean(1)).mean()  # <- smooth_spread


losses, velocity, mom = [], torch.zeros_like(theta), 0.9
gen = torch.Generator().manual_seed(11)
for it in range(4):
    y = torch.randint(0, 5, (16,), generator=gen)
    x = torch.randn(16, 3, 12, 12, generator=gen) + y.view(-1, 1, 1, 1) * 0.3
    value = smoothed_nll(forward(theta, x.permute(0, 2, 3, 1)), y)
    (grad,) = torch.autograd.grad(value, theta)
    eta = 0.05 * 0.5 ** (it // 2)  # <- rate_step
    with torch.no_grad():
        grad = grad + decay * theta
        velocity = mom * velocity + grad
        # the look-ahead: grad + mom * buffer
        theta = theta - eta * (grad + mom * velocity)  # <- look_ahead rate_step
    theta.requires_grad_()
    losses.append(float(value))
print(losses)
