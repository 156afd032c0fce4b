# SPDX-License-Identifier: Apache-2.0
"""A mobile classifier with shuffled groups and squeeze-and-excitation, trained as in the recipes of
EfficientNet: RMSprop, smoothed labels, warmup, no decay of gains and an average for the evaluation.
"""

import copy
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

CLASSES, SIDE, BATCH = 5, 16, 8


def channel_shuffle(x, groups):
    b, c, h, w = x.size()
    x = x.view(b, groups, c // groups, h, w)  # <- shuffled
    x = torch.transpose(x, 1, 2).contiguous()  # <- shuffled
    return x.view(b, -1, h, w)


class SqueezeExcite(nn.Module):
    def __init__(self, channels, reduced):
        super().__init__()
        self.conv_reduce = nn.Conv2d(channels, reduced, 1)
        self.conv_expand = nn.Conv2d(reduced, channels, 1)

    def forward(self, x):
        x_se = x.mean((2, 3), keepdim=True)
        x_se = F.silu(self.conv_reduce(x_se))
        return x * F.hardsigmoid(self.conv_expand(x_se))  # <- gate


class InvertedResidual(nn.Module):
    def __init__(self, inp, oup, stride):
        super().__init__()
        self.stride = stride
        branch = oup // 2
        if stride > 1:
            self.branch1 = nn.Sequential(
                nn.Conv2d(inp, inp, 3, stride, 1, groups=inp, bias=False),
                nn.BatchNorm2d(inp, eps=1e-3, momentum=0.01),
                nn.Conv2d(inp, branch, 1, bias=False),
                nn.BatchNorm2d(branch, eps=1e-3, momentum=0.01),
                nn.ReLU(inplace=True),
            )
        else:
            self.branch1 = nn.Identity()
        self.branch2 = nn.Sequential(
            nn.Conv2d(inp if stride > 1 else branch, branch, 1, bias=False),
            nn.BatchNorm2d(branch, eps=1e-3, momentum=0.01),
            nn.ReLU(inplace=True),
            nn.Conv2d(branch, branch, 3, stride, 1, groups=branch, bias=False),
            nn.BatchNorm2d(branch, eps=1e-3, momentum=0.01),
            SqueezeExcite(branch, 2),
            nn.Conv2d(branch, branch, 1, bias=False),
            nn.BatchNorm2d(branch, eps=1e-3, momentum=0.01),  # <- epsilon
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        if self.stride == 1:
            x1, x2 = x.chunk(2, dim=1)  # <- halves
            out = torch.cat((x1, self.branch2(x2)), dim=1)  # <- halves epsilon
        else:
            out = torch.cat((self.branch1(x), self.branch2(x)), dim=1)  # <- epsilon
        return channel_shuffle(out, 2)  # <- shuffled


class ShuffleNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv_stem = nn.Conv2d(3, 8, 3, 2, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(8, eps=1e-3, momentum=0.01)
        self.blocks = nn.Sequential(
            InvertedResidual(8, 16, 2), InvertedResidual(16, 16, 1), InvertedResidual(16, 16, 1)
        )
        self.classifier = nn.Linear(16, CLASSES)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv_stem(x)))  # <- running
        x = self.blocks(x)
        return self.classifier(x.mean([2, 3]))


class ModelEma:
    def __init__(self, model, decay):
        self.module = copy.deepcopy(model).eval()
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for ema_v, model_v in zip(self.module.state_dict().values(), model.state_dict().values()):
            if ema_v.is_floating_point():
                ema_v.copy_(self.decay * ema_v + (1.0 - self.decay) * model_v)  # <- averaged


def add_weight_decay(model, weight_decay):
    decay, no_decay = [], []
    for param in model.parameters():
        (no_decay if param.ndim <= 1 else decay).append(param)  # <- decayed
    return [{"params": no_decay, "weight_decay": 0.0}, {"params": decay}]  # <- decayed


class RMSpropTF(torch.optim.Optimizer):
    """RMSprop with epsilon inside of the square root and averages that begin with one."""

    def __init__(self, params, lr, alpha=0.9, eps=1e-3, momentum=0.9, weight_decay=0.0):
        defaults = {
            "lr": lr,
            "alpha": alpha,
            "eps": eps,
            "momentum": momentum,
            "weight_decay": weight_decay,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                grad, state = p.grad, self.state[p]
                if len(state) == 0:
                    state["square_avg"] = torch.ones_like(p)  # <- started
                    state["momentum_buffer"] = torch.zeros_like(p)
                square_avg, buf = state["square_avg"], state["momentum_buffer"]
                if group["weight_decay"] != 0:
                    grad = grad.add(p, alpha=group["weight_decay"])  # <- decayed
                square_avg.add_(
                    grad.pow(2) - square_avg, alpha=1.0 - group["alpha"]
                )  # <- started decayed
                avg = square_avg.add(group["eps"]).sqrt_()  # <- started
                buf.mul_(group["momentum"]).addcdiv_(grad, avg, value=group["lr"])  # <- decayed
                p.add_(-buf)


torch.manual_seed(71)
model = ShuffleNet()
torch.save({"model": model.state_dict(), "epoch": 0}, sys.argv[1])
ema = ModelEma(model, decay=0.8)
optimizer = RMSpropTF(add_weight_decay(model, 1e-2), lr=0.01, weight_decay=1e-2)  # <- decayed
train_loss = nn.CrossEntropyLoss(label_smoothing=0.1)
rng = np.random.default_rng(72)


def batch():
    images = rng.integers(0, 256, (BATCH, SIDE, SIDE, 3)).astype(np.float32)
    x = torch.from_numpy(images).permute(0, 3, 1, 2)
    mean = torch.tensor([123.675, 116.28, 103.53]).view(1, 3, 1, 1)
    std = torch.tensor([58.395, 57.12, 57.375]).view(1, 3, 1, 1)
    return (x - mean) / std, torch.from_numpy(rng.integers(0, CLASSES, BATCH))


losses = []
for step in range(4):
    lr = 0.01 * min(1.0, (step + 1) / 3)
    for group in optimizer.param_groups:
        group["lr"] = lr
    x, target = batch()
    loss = train_loss(model(x), target)  # <- smoothed
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ema.update(model)  # <- averaged
    losses.append(loss.item())
x, target = batch()
with torch.no_grad():
    losses.append(F.cross_entropy(ema.module(x), target).item())
