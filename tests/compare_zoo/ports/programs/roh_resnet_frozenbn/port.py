# SPDX-License-Identifier: Apache-2.0
"""ResNet from hand-made parts: NHWC input pipeline, own batch norm with explicit statistics, own SGD loop."""
import math
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


class Norm(nn.Module):
    def __init__(self, width, rate=0.1, eps=1e-5):
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("mu", torch.zeros(width))
        self.register_buffer("var", torch.ones(width))
        self.rate, self.eps, self.frozen = rate, eps, False

    def forward(self, x):
        if self.frozen:
            mu, var = self.mu, self.var  # <- variance_biased momentum_swapped
        else:
            var, mu = torch.var_mean(x, dim=(0, 2, 3), correction=0)
            with torch.no_grad():
                n = x.numel() // x.shape[1]
                self.mu.mul_(1 - self.rate).add_(self.rate * mu)  # <- momentum_swapped
                self.var.mul_(1 - self.rate).add_(self.rate * var * n / (n - 1))  # <- variance_biased momentum_swapped
        scale = self.gain * torch.rsqrt(var + self.eps)
        return x * scale[:, None, None] + (self.shift - mu * scale)[:, None, None]


class ConvNorm(nn.Module):
    def __init__(self, cin, cout, size, stride):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(cout, cin, size, size))
        self.norm = Norm(cout)
        self.stride, self.pad = stride, size // 2

    def forward(self, x):
        return self.norm(F.conv2d(x, self.kernel, stride=self.stride, padding=self.pad))


class Net(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.stem = ConvNorm(3, 8, 7, 2)
        self.a1, self.a2 = ConvNorm(8, 8, 3, 1), ConvNorm(8, 8, 3, 1)
        self.b1, self.b2, self.skip = ConvNorm(8, 16, 3, 2), ConvNorm(16, 16, 3, 1), ConvNorm(8, 16, 1, 2)
        self.out = nn.Linear(16, classes)

    def forward(self, image):
        x = F.max_pool2d(self.stem(image).relu(), 3, stride=2, padding=1)
        x = (x + self.a2(self.a1(x).relu())).relu()
        x = (self.skip(x) + self.b2(self.b1(x).relu())).relu()
        return self.out(x.mean(dim=(2, 3)))


SOURCES = {
    "stem": "resnet.embedder.embedder",
    "a1": "resnet.encoder.stages.0.layers.0.layer.0",
    "a2": "resnet.encoder.stages.0.layers.0.layer.1",
    "b1": "resnet.encoder.stages.1.layers.0.layer.0",
    "b2": "resnet.encoder.stages.1.layers.0.layer.1",
    "skip": "resnet.encoder.stages.1.layers.0.shortcut",
}
FIELDS = {"gain": "weight", "shift": "bias", "mu": "running_mean", "var": "running_var"}


def load(net, path):
    src = torch.load(path)
    with torch.no_grad():
        for name, origin in SOURCES.items():
            part = getattr(net, name)
            part.kernel.copy_(src[origin + ".convolution.weight"])
            for mine, theirs in FIELDS.items():
                getattr(part.norm, mine).copy_(src[f"{origin}.normalization.{theirs}"])
        net.out.weight.copy_(src["classifier.1.weight"])
        net.out.bias.copy_(src["classifier.1.bias"])


def images(count=40, seed=31):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 4, (count,), generator=g)
    x = (0.4 * torch.rand(count, 3, 16, 16, generator=g)).numpy().transpose(0, 2, 3, 1).copy()
    ramp = torch.linspace(0, 0.6, 16).numpy()
    kinds = np.stack([np.tile(ramp, (16, 1)), np.tile(ramp[::-1], (16, 1))])
    kinds = np.concatenate([kinds, kinds.transpose(0, 2, 1)])
    x = x + kinds[y.numpy()][..., None]
    mean, std = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
    x = (x - mean) / std  # <- no_std
    return torch.from_numpy(x).permute(0, 3, 1, 2), y


net = Net()
load(net, sys.argv[1])
weights = [(p, 0.05 if p.ndim > 1 else 0.0) for p in net.parameters()]  # <- decay_everywhere
velocity = [torch.zeros_like(p) for p, _ in weights]
x, y = images()

losses = []
for step in range(5):
    for module in net.modules():
        if isinstance(module, Norm):
            module.frozen = step >= 2
    part = slice(8 * step, 8 * step + 8)
    loss = F.cross_entropy(net(x[part]), y[part])
    grads = torch.autograd.grad(loss, [p for p, _ in weights])
    lr = 0.025 * (1 + math.cos(math.pi * step / 5))  # <- cosine_early
    with torch.no_grad():
        for (p, decay), v, g in zip(weights, velocity, grads):
            v.mul_(0.9).add_(g + decay * p)  # <- decay_everywhere
            p.sub_(lr * v)  # <- cosine_early
    losses.append(loss.item())

print(losses)
