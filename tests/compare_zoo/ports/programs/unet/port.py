# SPDX-License-Identifier: Apache-2.0
"""The same UNet without containers: functional calls on named tensors, batch norm written out, the
transposed convolution as a product whose parts are put apart, gradients to None by hand.
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn.functional import conv2d

KINDS, EPS, MOMENTUM = 3, 1e-5, 0.1


class BatchNorm(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.g, self.b = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("var", torch.ones(channels))

    def forward(self, x):
        if self.training:
            mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
            n = x.numel() / x.shape[1]
            with torch.no_grad():
                self.mean.mul_(1 - MOMENTUM).add_(MOMENTUM * mean)  # <- momentum
                self.var.mul_(1 - MOMENTUM).add_(MOMENTUM * var * n / (n - 1))  # <- momentum
        else:
            mean, var = self.mean, self.var
        x = (x - mean[:, None, None]) / (var + EPS).sqrt()[:, None, None]  # <- norm_eps
        return x * self.g[:, None, None] + self.b[:, None, None]


class Pair(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.w1 = nn.Parameter(torch.randn(after, before, 3, 3))
        self.w2 = nn.Parameter(torch.randn(after, after, 3, 3))
        self.bn1, self.bn2 = BatchNorm(after), BatchNorm(after)

    def forward(self, x):
        x = self.bn1(conv2d(x, self.w1, padding=1)).clamp(min=0)  # <- slope
        return self.bn2(conv2d(x, self.w2, padding=1)).clamp(min=0)  # <- slope


class Upward(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(before, after, 2, 2))
        self.bias = nn.Parameter(torch.randn(after))

    def forward(self, x):
        n, _, h, w = x.shape
        y = torch.einsum("nihw,ioab->nohawb", x, self.weight)  # <- flipped
        return y.reshape(n, -1, 2 * h, 2 * w) + self.bias.view(1, -1, 1, 1)  # <- flipped


def halved(x):
    n, c, h, w = x.shape
    return x.view(n, c, h // 2, 2, w // 2, 2).amax((3, 5))  # <- pool


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder1, self.encoder2, self.centre = Pair(1, 4), Pair(4, 8), Pair(8, 16)
        self.to_middle, self.decoder2 = Upward(16, 8), Pair(16, 8)
        self.to_top, self.decoder1 = Upward(8, 4), Pair(8, 4)
        self.logits = nn.Linear(4, KINDS)

    def forward(self, x):
        high = self.encoder1(x)
        middle = self.encoder2(halved(high))  # <- pool
        x = self.to_middle(self.centre(halved(middle)))
        x = self.decoder2(torch.cat((middle, x), 1))  # <- joined
        x = self.decoder1(torch.cat((high, self.to_top(x)), 1))
        return self.logits(x.movedim(1, -1))


BLOCKS = {"inc": "encoder1", "down": "encoder2", "bottom": "centre", "conv1": "decoder2"}
BLOCKS |= {"conv2": "decoder1", "up1": "to_middle", "up2": "to_top", "out": "logits"}
INNER = {"conv1.weight": "w1", "conv2.weight": "w2"}
for number in (1, 2):
    pairs = {"weight": "g", "bias": "b", "running_mean": "mean", "running_var": "var"}
    INNER |= {f"norm{number}.{old}": f"bn{number}.{new}" for old, new in pairs.items()}


def load(path):
    state = {}
    for name, value in torch.load(path).items():
        block, _, rest = name.partition(".")
        if rest.endswith("num_batches_tracked"):
            continue
        state[f"{BLOCKS[block]}.{INNER.get(rest, rest)}"] = value
    state["logits.weight"] = state["logits.weight"][:, :, 0, 0]
    return state


def objective(scores, mask):
    log_p = torch.log_softmax(scores, -1)
    right = torch.eye(KINDS)[mask]
    entropy = -(log_p * right).sum(-1).mean()
    p, dims = log_p.exp(), (0, 1, 2)
    overlap = 2 * (p * right).sum(dims)
    dice = (overlap + 1e-6) / (p.sum(dims) + right.sum(dims) + 1e-6)  # <- dice
    return entropy + 1 - dice.mean()  # <- dice


net = Segmenter()
net.load_state_dict(load(sys.argv[1]))
optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3, momentum=0.9, foreach=False)
rng = np.random.default_rng(3)
losses = []
for _ in range(2):
    image = torch.tensor(rng.standard_normal((2, 1, 16, 16), dtype=np.float32))
    mask = torch.tensor(rng.integers(0, KINDS, (2, 16, 16)))
    loss = objective(net(image), mask)
    loss.backward()
    optimizer.step()
    for p in net.parameters():
        p.grad = None
    losses.append(loss.item())
with torch.no_grad():
    scores = net.eval()(image)
    log_p = scores.log_softmax(-1).gather(-1, mask[..., None])
    losses.append(-log_p.mean().item())
