# SPDX-License-Identifier: Apache-2.0
"""A PoolFormer of one's own for images in the order height, width, channel: patches are cut out
and multiplied, the pool is a sum of shifted pictures divided by how many there were.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

WIDTHS, DEPTHS, KERNELS, STRIDES, PADS = (12, 20, 24), (1, 2, 1), (7, 3, 3), (4, 2, 2), (2, 1, 1)
CLASSES, STEPS = 6, 5


def shifted(x):
    """The nine pictures around, nought beyond the border."""
    height, width = x.shape[1:3]
    wide = F.pad(x, (0, 0, 1, 1, 1, 1))
    return [wide[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]


class Patches(nn.Module):
    def __init__(self, channels, width, kernel, stride, pad):
        super().__init__()
        self.kernel, self.stride, self.pad = kernel, stride, pad
        self.table = nn.Parameter(0.5 * torch.randn(kernel, kernel, channels, width) / kernel)
        self.shift = nn.Parameter(0.1 * torch.randn(width))

    def forward(self, x):
        x = F.pad(x, (0, 0, self.pad, self.pad, self.pad, self.pad))  # <- padding
        cut = x.unfold(1, self.kernel, self.stride).unfold(2, self.kernel, self.stride)
        return torch.einsum("bhwcij,ijco->bhwo", cut, self.table) + self.shift  # <- padding axes


class Norm(nn.Module):
    """Over a whole picture."""

    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(1 + 0.2 * torch.randn(width))
        self.bias = nn.Parameter(0.2 * torch.randn(width))

    def forward(self, x):
        var, mean = torch.var_mean(x, dim=(1, 2, 3), keepdim=True, correction=0)
        return (x - mean) / torch.sqrt(var + 1e-5) * self.gain + self.bias


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = Norm(width), Norm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.gamma = nn.Parameter(0.3 + 0.1 * torch.randn(2, width))

    def forward(self, x):
        h = self.norm1(x)
        count = sum(shifted(torch.ones_like(h[:1, :, :, :1])))
        x = x + self.gamma[0] * (sum(shifted(h)) / count - h)  # <- layer_scale
        return x + self.gamma[1] * self.down(F.gelu(self.up(self.norm2(x))))  # <- layer_scale


class PoolFormer(nn.Module):
    def __init__(self):
        super().__init__()
        cuts = zip((3, *WIDTHS), WIDTHS, KERNELS, STRIDES, PADS)
        self.patches = nn.ModuleList(Patches(*cut) for cut in cuts)
        self.stages = nn.ModuleList(
            nn.Sequential(*[Block(w) for _ in range(d)]) for w, d in zip(WIDTHS, DEPTHS)
        )
        self.norm, self.head = Norm(WIDTHS[-1]), nn.Linear(WIDTHS[-1], CLASSES)

    def forward(self, x):
        for patches, stage in zip(self.patches, self.stages):
            x = stage(patches(x))
        return self.head(self.norm(x).mean((1, 2)))


torch.manual_seed(31)
net = PoolFormer()
torch.save(net.state_dict(), sys.argv[1])
velocity = [torch.zeros_like(p) for p in net.parameters()]
generator = torch.Generator().manual_seed(32)
losses = []
for step in range(STEPS):
    images = torch.randint(0, 256, (4, 32, 32, 3), generator=generator) / 255  # <- axes
    labels = torch.randint(0, CLASSES, (4,), generator=generator)
    logs = net((images - 0.5) / 0.25).log_softmax(-1)  # <- axes
    hit = logs.gather(1, labels[:, None]).mean()
    loss = -(0.9 * hit + 0.1 * logs.mean())  # <- smoothing
    net.zero_grad()
    loss.backward()
    rate = 0.05 * min(1.0, (step + 1) / 3)  # <- warmup
    with torch.no_grad():
        for p, v in zip(net.parameters(), velocity):
            v.mul_(0.9).add_(p.grad)
            p.sub_(rate * v)  # <- warmup
    losses.append(loss.item())
