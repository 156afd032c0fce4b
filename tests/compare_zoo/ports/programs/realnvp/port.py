# SPDX-License-Identifier: Apache-2.0
"""The same Real NVP with halves in place of channel masks (so their networks read and write only
what they need), separate networks' outputs for scale and shift, distributions of torch and a
rate set by hand.
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.distributions import Normal
from torch.nn.functional import conv2d, logsigmoid

MARGIN, PIXELS = 0.05, 64


class ScaleAndShift(nn.Module):
    def __init__(self, inputs, outputs, width=16):
        super().__init__()
        self.w1, self.b1 = weight(width, inputs, 3), weight(width)
        self.w2, self.b2 = weight(width, width, 1), weight(width)
        self.ws, self.bs = weight(outputs, width, 3), weight(outputs)
        self.wt, self.bt = weight(outputs, width, 3), weight(outputs)
        self.gain = weight(outputs)

    def forward(self, x):
        h = conv2d(x, self.w1, self.b1, padding=1).relu()
        h = conv2d(h, self.w2, self.b2).relu() + h  # <- skip
        log_scale = conv2d(h, self.ws, self.bs, padding=1).tanh()  # <- tanh
        shift = conv2d(h, self.wt, self.bt, padding=1)
        return log_scale * self.gain[:, None, None], shift  # <- tanh


def weight(*shape):
    return nn.Parameter(torch.zeros(*shape, shape[-1]) if len(shape) == 3 else torch.zeros(shape))


class Checkerboard(nn.Module):
    def __init__(self, keep):
        super().__init__()
        self.net = ScaleAndShift(1, 1)
        cells = torch.arange(8)
        self.kept = (cells[:, None] + cells) % 2 == keep  # <- parity

    def forward(self, x):
        zero = torch.zeros(())
        log_scale, shift = self.net(torch.where(self.kept, x, zero))  # <- parity
        y = torch.where(self.kept, x, x * log_scale.exp() + shift)  # <- parity
        changed = torch.where(self.kept, zero, log_scale)  # <- counted parity
        return y, changed.sum((1, 2, 3))  # <- counted


class Halves(nn.Module):
    def __init__(self, *, swap):
        super().__init__()
        self.net = ScaleAndShift(2, 2)
        self.swap = swap

    def forward(self, x):
        upper, lower = x[:, :2], x[:, 2:]
        if self.swap:
            upper, lower = lower, upper
        log_scale, shift = self.net(upper)
        lower = lower * log_scale.exp() + shift
        pair = (lower, upper) if self.swap else (upper, lower)
        return torch.cat(pair, 1), log_scale.sum((1, 2, 3))


class Fold(nn.Module):
    def forward(self, x):
        corners = [x[..., i::2, j::2] for i in (0, 1) for j in (0, 1)]  # <- squeeze
        return torch.cat(corners, 1), x.new_zeros(len(x))  # <- squeeze


class Logits(nn.Module):
    def forward(self, x):
        y = torch.logit(MARGIN + (1 - 2 * MARGIN) * x)
        slope = np.log(1 - 2 * MARGIN) - logsigmoid(y) - logsigmoid(-y)  # <- slope
        return y, slope.sum((1, 2, 3))


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = nn.ModuleList(
            [
                Logits(),
                Checkerboard(1),
                Checkerboard(0),
                Fold(),
                Halves(swap=False),
                Halves(swap=True),
            ]
        )

    def log_prob(self, x):
        total = 0
        for step in self.steps:
            x, log_determinant = step(x)
            total = total + log_determinant  # <- sign
        density = Normal(0.0, 1.0).log_prob(x).sum((1, 2, 3))
        return density + total


def renamed(old):
    new = {}
    table = [("checker.0", 1, [0], [0]), ("checker.1", 2, [0], [0])]
    table += [("channel.0", 4, [0, 1], [2, 3]), ("channel.1", 5, [2, 3], [0, 1])]
    for theirs, place, read, written in table:
        net, mine = f"{theirs}.st_net", f"steps.{place}.net"
        new[f"{mine}.w1"] = old[f"{net}.conv_in.weight"][:, read]
        new[f"{mine}.b1"] = old[f"{net}.conv_in.bias"]
        new[f"{mine}.w2"] = old[f"{net}.conv_mid.weight"]
        new[f"{mine}.b2"] = old[f"{net}.conv_mid.bias"]
        for kind, place_of in (("weight", "w"), ("bias", "b")):
            scale, shift = old[f"{net}.conv_out.{kind}"].chunk(2)
            new[f"{mine}.{place_of}s"] = scale[written]
            new[f"{mine}.{place_of}t"] = shift[written]
        new[f"{mine}.gain"] = old[f"{theirs}.rescale"].flatten()[written]
    return new


rng = np.random.default_rng(41)
shape = (3, 6, 1, 8, 8)
pixels = torch.tensor(rng.integers(0, 256, shape), dtype=torch.float32)
noise = torch.tensor(rng.random(shape, dtype=np.float32))
flow = Flow()
flow.load_state_dict(renamed(torch.load(sys.argv[1])))
optimizer = torch.optim.Adam(flow.parameters())
losses = []
for step in range(3):
    for group in optimizer.param_groups:
        group["lr"] = 5e-3 * min(1.0, (step + 1) / 3)  # <- warmup
    x = (pixels[step] + noise[step]) / 256
    nats = -flow.log_prob(x).mean() / PIXELS
    loss = nats / np.log(2) + 8
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()  # <- warmup
    losses.append(loss.item())
