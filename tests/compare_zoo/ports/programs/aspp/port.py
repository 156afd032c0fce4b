# SPDX-License-Identifier: Apache-2.0
"""The same segmentation network with dilated convolutions as sums of shifted maps, upsampling as
products with matrices of weights, a masked loss, SGD with the poly rate in one function.
"""

import sys

import numpy as np
import torch
from torch import nn

RATES, KINDS, VOID, TOTAL = (1, 2, 3), 5, 255, 6


class Normalised(nn.Module):
    """A convolution of any stride and dilation, tap by tap, then batch norm and ReLU."""

    def __init__(self, inputs, outputs, size=1, stride=1, rate=1):
        super().__init__()
        self.taps = nn.Parameter(torch.zeros(size, size, outputs, inputs))
        self.gain = nn.Parameter(torch.zeros(outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.stride, self.rate = stride, rate

    def forward(self, x):
        size, height, width = len(self.taps), *x.shape[2:]
        reach = self.rate * (size // 2)  # <- dilation
        padded = nn.functional.pad(x, [reach] * 4)  # <- dilation
        total = 0
        for i in range(size):
            for j in range(size):
                top, left = i * self.rate, j * self.rate  # <- dilation
                seen = padded[:, :, top : top + height, left : left + width]  # <- dilation
                seen = seen[:, :, :: self.stride, :: self.stride]
                total = total + torch.einsum("bihw,oi->bohw", seen, self.taps[i, j])  # <- dilation
        mean = total.mean((0, 2, 3), keepdim=True)
        spread = total.var((0, 2, 3), keepdim=True, unbiased=False)
        unit = (total - mean) / (spread + 1e-5).sqrt()
        return (unit * self.gain[:, None, None] + self.bias[:, None, None]).relu()


class Pyramid(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.point = Normalised(inputs, outputs)
        self.atrous = nn.ModuleList(Normalised(inputs, outputs, 3, rate=rate) for rate in RATES)
        self.scene = Normalised(inputs, outputs)
        self.merge = Normalised((2 + len(RATES)) * outputs, outputs)

    def forward(self, x):
        scene = self.scene(x.mean((2, 3), keepdim=True)).expand(-1, -1, *x.shape[2:])  # <- pooling
        views = [self.point(x), *(branch(x) for branch in self.atrous), scene]  # <- concat
        return self.merge(torch.cat(views, 1))  # <- concat


def stretching(small, large):
    """The matrix that takes a line of small pixels to one of large, pixels being areas."""
    centre = ((torch.arange(large) + 0.5) * small / large - 0.5).clamp(0, small - 1)  # <- corners
    return (1 - (centre[:, None] - torch.arange(small)).abs()).clamp(min=0)


class Segmenter(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.stem = Normalised(3, width, 3, stride=2)
        self.body = Normalised(width, 2 * width, 3, stride=2)
        self.pyramid = Pyramid(2 * width, width)
        self.refine = Normalised(width, width, 3)
        self.kernel = nn.Parameter(torch.zeros(KINDS, width))
        self.bias = nn.Parameter(torch.zeros(KINDS))

    def forward(self, picture):
        x = self.refine(self.pyramid(self.body(self.stem(picture))))
        x = torch.einsum("bchw,kc->bkhw", x, self.kernel) + self.bias[:, None, None]
        rows = stretching(x.shape[2], picture.shape[2])
        columns = stretching(x.shape[3], picture.shape[3])
        return rows @ x @ columns.T  # <- corners


def translated(old):
    table = {
        "stem": "backbone.0",
        "body": "backbone.1",
        "pyramid.point": "aspp.convs.0",
        "pyramid.scene": f"aspp.convs.{1 + len(RATES)}.conv",
        "pyramid.merge": "aspp.project",
        "refine": "refine",
    }
    table |= {f"pyramid.atrous.{i}": f"aspp.convs.{1 + i}" for i in range(len(RATES))}
    new = {"kernel": old["classifier.weight"][:, :, 0, 0], "bias": old["classifier.bias"]}
    for mine, theirs in table.items():
        new[f"{mine}.taps"] = old[f"{theirs}.0.weight"].permute(2, 3, 0, 1)
        new[f"{mine}.gain"] = old[f"{theirs}.1.weight"]
        new[f"{mine}.bias"] = old[f"{theirs}.1.bias"]
    return new


def masked_loss(scores, truth):
    known = truth != VOID
    logs = scores - scores.logsumexp(1, keepdim=True)
    picked = logs.gather(1, truth.where(known, 0).unsqueeze(1)).squeeze(1)
    return -(picked * known).sum() / known.sum()  # <- ignored


@torch.no_grad()
def descend(parameters, velocities, step, base=0.1, momentum=0.9, decay=5e-3):
    rate = base * (1 - step / TOTAL) ** 0.9  # <- poly
    for p, velocity in zip(parameters, velocities):
        velocity.mul_(momentum).add_(p.grad + decay * p)  # <- decay
        p.sub_(rate * velocity)  # <- poly decay
        p.grad = None


def prepared(pixels):
    pictures = torch.tensor(pixels).double().movedim(-1, 1) / 255
    mean = torch.tensor([0.485, 0.456, 0.406], dtype=torch.float64).view(3, 1, 1)
    deviation = torch.tensor([0.229, 0.224, 0.225], dtype=torch.float64).view(3, 1, 1)
    return ((pictures - mean) / deviation).float()  # <- deviation


rng = np.random.default_rng(71)
pixels = rng.integers(0, 256, (3, 4, 24, 24, 3))
truths = np.kron(rng.integers(0, KINDS, (3, 4, 6, 6)), np.ones((4, 4), dtype=np.int64))
truths = np.where(rng.random(truths.shape) < 0.2, VOID, truths)
net = Segmenter()
net.load_state_dict(translated(torch.load(sys.argv[1])))
parameters = list(net.parameters())
velocities = [torch.zeros_like(p) for p in parameters]
losses = []
for step in range(3):
    loss = masked_loss(net(prepared(pixels[step])), torch.tensor(truths[step]))
    loss.backward()
    descend(parameters, velocities, step)
    losses.append(loss.item())
