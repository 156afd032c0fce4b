# SPDX-License-Identifier: Apache-2.0
"""The head alone: the ResNet is folded to convolutions with biases and run once over all batches,
then the head is trained on what was kept of it.
"""

import sys

import torch
from torch import nn

N_CLASSES, B, SIDE, EPOCHS = 5, 6, 14, 5


def fold(saved, conv, bn):
    """Weight and bias of a convolution with its batch norm."""
    factor = saved[f"{bn}.weight"] / torch.sqrt(saved[f"{bn}.running_var"] + 1e-5)
    weight = saved[f"{conv}.weight"] * factor.view(-1, 1, 1, 1)
    return weight, saved[f"{bn}.bias"] - saved[f"{bn}.running_mean"] * factor  # <- folded


class ConvAct(nn.Conv2d):
    def __init__(self, cin, cout, kernel, stride=1, act=True):
        super().__init__(cin, cout, kernel, stride=stride, padding=kernel // 2)  # <- stride
        self.act = act

    def forward(self, x):
        y = super().forward(x)  # <- folded stride
        return y.clamp(min=0) if self.act else y

    def fill(self, saved, conv, bn):
        weight, bias = fold(saved, conv, bn)  # <- folded
        self.weight.data.copy_(weight)
        self.bias.data.copy_(bias)


def halve(x):
    """The mean of two by two; what stands over at an odd edge has a mean of its own."""
    ones = x.new_ones(1, 1, *x.shape[2:])
    x, ones = (nn.functional.pad(y, (0, y.shape[3] % 2, 0, y.shape[2] % 2)) for y in (x, ones))
    count = nn.functional.avg_pool2d(ones, 2)
    return nn.functional.avg_pool2d(x, 2) / count  # <- edge


class Stage(nn.Module):
    def __init__(self, cin, mid, cout):
        super().__init__()
        self.reduce = ConvAct(cin, mid, 1)  # <- stride
        self.spatial = ConvAct(mid, mid, 3, stride=2)  # <- stride
        self.expand = ConvAct(mid, cout, 1, act=False)
        self.shortcut = ConvAct(cin, cout, 1, act=False)

    def forward(self, x):
        y = self.expand(self.spatial(self.reduce(x)))  # <- folded stride
        return (self.shortcut(halve(x)) + y).relu()  # <- edge folded


class Deployed(nn.Module):
    def __init__(self, saved):
        super().__init__()
        self.stem = ConvAct(3, 8, 3)
        self.stages = nn.ModuleList([Stage(8, 6, 16), Stage(16, 8, 24)])
        self.stem.fill(saved, "backbone.conv", "backbone.bn")
        for n, stage in enumerate(self.stages, 1):
            here = f"backbone.stage{n}"
            stage.reduce.fill(saved, f"{here}.conv1", f"{here}.bn1")
            stage.spatial.fill(saved, f"{here}.conv2", f"{here}.bn2")
            stage.expand.fill(saved, f"{here}.conv3", f"{here}.bn3")
            stage.shortcut.fill(saved, f"{here}.down", f"{here}.down_bn")

    def forward(self, x):
        x = self.stem(x)  # <- folded
        for stage in self.stages:
            x = stage(x)
        return nn.functional.adaptive_avg_pool2d(x, 1).flatten(1)


def prepare():
    """Mixed images and soft labels of all batches."""
    rng = torch.Generator().manual_seed(182)
    for _ in range(EPOCHS):
        images = torch.rand(B, 3, SIDE, SIDE, generator=rng)
        labels = torch.randint(N_CLASSES, (B,), generator=rng)
        lam = torch.rand((), generator=rng) / 2 + 0.5
        pair = torch.randperm(B, generator=rng)
        soft = torch.eye(N_CLASSES)[labels]
        soft = torch.lerp(soft[pair], soft, lam)  # <- mixed
        yield torch.lerp(images[pair], images, lam), soft  # <- mixed


saved = torch.load(sys.argv[1])
with torch.no_grad():
    images, soft_labels = zip(*prepare())
    network = Deployed(saved).to(memory_format=torch.channels_last)
    kept = network(torch.cat(images))
kept = kept.split(B)

names = ["hidden.weight", "hidden.bias", "prototypes", "scale"]
head = [saved[n].clone().requires_grad_() for n in names]
velocity = [torch.zeros_like(p) for p in head]
lr = 0.1
losses = []
for epoch in range(EPOCHS):
    w, b, prototypes, scale = head
    x = torch.addmm(b, kept[epoch], w.mT).tanh()
    cosine = x @ prototypes.mT
    cosine = cosine / torch.outer(x.norm(dim=1), prototypes.norm(dim=1))
    loss = -(soft_labels[epoch] * (scale * cosine).log_softmax(1)).sum() / B  # <- mixed
    gradients = torch.autograd.grad(loss, head)
    lr *= 0.2 if epoch in {1, 3} else 1.0
    with torch.no_grad():
        for p, v, g in zip(head, velocity, gradients):
            v.mul_(0.9).add_(g)  # <- velocity
            p.sub_(lr * v)  # <- velocity
    losses.append(loss.item())
