# SPDX-License-Identifier: Apache-2.0
"""The ResNet with channels last in every tensor and its own batch normalization."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 5


class Conv(nn.Module):
    """A convolution without bias of (N, H, W, C) with a kernel of (h, w, in, out)."""

    def __init__(self, kernel, cin, cout, stride=1):
        super().__init__()
        self.kernel = nn.Parameter(torch.zeros(kernel, kernel, cin, cout))
        self.stride, self.pad = stride, kernel // 2

    def forward(self, x):
        weight = self.kernel.permute(3, 2, 0, 1)
        y = F.conv2d(x.permute(0, 3, 1, 2), weight, stride=self.stride, padding=self.pad)
        return y.permute(0, 2, 3, 1)


class BatchNorm(nn.Module):
    def __init__(self, channels, decay=0.9, eps=1e-5):
        super().__init__()
        self.decay, self.eps = decay, eps
        self.gamma = nn.Parameter(torch.ones(channels))
        self.beta = nn.Parameter(torch.zeros(channels))
        self.register_buffer("moving_mean", torch.zeros(channels))
        self.register_buffer("moving_var", torch.ones(channels))

    def forward(self, x):
        if self.training:
            mean = x.mean(dim=(0, 1, 2))  # <- eval_mode
            var = x.var(dim=(0, 1, 2), unbiased=False)  # <- eval_mode
            with torch.no_grad():
                n = x.numel() // x.shape[-1]
                unbiased = var * n / (n - 1)  # <- unbiased
                self.moving_mean.lerp_(mean, 1 - self.decay)  # <- momentum
                self.moving_var.lerp_(unbiased, 1 - self.decay)  # <- unbiased momentum
        else:
            mean, var = self.moving_mean, self.moving_var  # <- eval_mode
        return (x - mean) / torch.sqrt(var + self.eps) * self.gamma + self.beta  # <- eval_mode


class Residual(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv_a, self.norm_a = Conv(3, cin, cout, stride), BatchNorm(cout)
        self.conv_b, self.norm_b = Conv(3, cout, cout), BatchNorm(cout)
        self.project = stride > 1 or cin != cout
        if self.project:
            self.conv_s, self.norm_s = Conv(1, cin, cout, stride), BatchNorm(cout)

    def forward(self, x):
        y = F.relu(self.norm_a(self.conv_a(x)))
        y = self.norm_b(self.conv_b(y))
        skip = self.norm_s(self.conv_s(x)) if self.project else x
        return F.relu(y + skip)  # <- activation


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.stem_norm = Conv(3, 3, 8), BatchNorm(8)
        self.blocks = nn.ModuleList(
            [Residual(8, 8), Residual(8, 8), Residual(8, 16, 2), Residual(16, 16)]
        )
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x):
        x = F.relu(self.stem_norm(self.stem(x)))
        x = F.pad(x, (0, 0, 1, 1, 1, 1))  # <- padding
        x = x.unfold(1, 3, 2).unfold(2, 3, 2).amax(dim=(-2, -1))  # <- padding
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(dim=(1, 2)))


def load(net, old):
    def conv(to, name):
        to.kernel.copy_(old[f"{name}.weight"].permute(2, 3, 1, 0))

    def norm(to, name):
        to.gamma.copy_(old[f"{name}.weight"])
        to.beta.copy_(old[f"{name}.bias"])

    conv(net.stem, "conv1")
    norm(net.stem_norm, "bn1")
    for block, name in zip(net.blocks, ["layer1.0", "layer1.1", "layer2.0", "layer2.1"]):
        conv(block.conv_a, f"{name}.conv1")
        norm(block.norm_a, f"{name}.bn1")
        conv(block.conv_b, f"{name}.conv2")
        norm(block.norm_b, f"{name}.bn2")
        if block.project:
            conv(block.conv_s, f"{name}.downsample.0")
            norm(block.norm_s, f"{name}.downsample.1")
    net.head.weight.copy_(old["fc.weight"])
    net.head.bias.copy_(old["fc.bias"])


net = Net()
with torch.no_grad():
    load(net, torch.load(sys.argv[1]))
sgd = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
rng = np.random.default_rng(12)
val_images = rng.normal(size=(6, 3, 16, 16)).astype(np.float32).transpose(0, 2, 3, 1)
val_images, val_labels = torch.tensor(val_images), torch.tensor(rng.integers(0, CLASSES, 6))
losses = []
for _ in range(3):
    images = torch.tensor(rng.normal(size=(8, 3, 16, 16)).astype(np.float32).transpose(0, 2, 3, 1))
    labels = torch.tensor(rng.integers(0, CLASSES, 8))
    net.train()
    loss = F.cross_entropy(net(images), labels)
    sgd.zero_grad()
    loss.backward()
    sgd.step()  # <- decay
    losses.append(loss.item())
    net.eval()
    with torch.no_grad():
        logits = net(val_images)  # <- eval_mode
        losses.append(F.cross_entropy(logits, val_labels).item())
