# SPDX-License-Identifier: Apache-2.0
"""The same with the losses by hand over masks instead of chosen boxes."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

K, A = 4, 2


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 12, 3, 2, 1), nn.Conv2d(12, 12, 3, 1, 1)
        self.gamma, self.beta = nn.Parameter(torch.ones(12)), nn.Parameter(torch.zeros(12))
        self.cls, self.reg = nn.Conv2d(12, A * K, 3, 1, 1), nn.Conv2d(12, A * 4, 3, 1, 1)

    def normed(self, x, groups=4):
        n, c, h, w = x.shape
        y = x.reshape(n, groups, -1)  # <- groups
        y = (y - y.mean(-1, keepdim=True)) / (
            y.var(-1, keepdim=True, unbiased=False) + 1e-5
        ).sqrt()  # <- groups
        return y.reshape(n, c, h, w) * self.gamma[:, None, None] + self.beta[:, None, None]

    def forward(self, x):
        x = self.normed(self.conv2(self.conv1(x).relu())).relu()  # <- groups
        n, _, h, w = (raw := self.cls(x)).shape
        cls = raw.reshape(n, A, K, h, w).permute(0, 3, 4, 1, 2).reshape(n, -1, K)  # <- layout
        reg = (
            self.reg(x).reshape(n, A, 4, h, w).permute(0, 3, 4, 1, 2).reshape(n, -1, 4)
        )  # <- layout
        return cls, reg


def focal_loss(x, hot, alpha=0.25, gamma=2.0):
    log_p, log_q = F.logsigmoid(x), F.logsigmoid(-x)
    p = torch.sigmoid(x)
    positive = -alpha * (1 - p) ** gamma * log_p * hot  # <- gamma alpha
    negative = -(1 - alpha) * p**gamma * log_q * (1 - hot)  # <- gamma alpha
    return (positive + negative).sum()  # <- alpha gamma


def smooth_l1(x, y, beta=0.5):
    d = (x - y).abs()
    return torch.where(d < beta, 0.5 * d * d / beta, d - 0.5 * beta)  # <- beta


net = Detector()
old = torch.load(sys.argv[1])
places = {"stem": "conv1", "tower.0": "conv2", "scores": "cls", "boxes": "reg"}
new = {"gamma": old.pop("tower.1.weight"), "beta": old.pop("tower.1.bias")}
for name, value in old.items():
    place, _, kind = name.rpartition(".")
    new[f"{places[place]}.{kind}"] = value
net.load_state_dict(new)
sgd = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
rng = np.random.default_rng(12)
losses = []
for _ in range(2):
    images = torch.from_numpy(rng.standard_normal((2, 3, 8, 8), dtype=np.float32))
    labels = torch.from_numpy(rng.integers(-8, K, (2, 32))).clamp(min=-1)
    wanted = torch.from_numpy(2 * rng.standard_normal((2, 32, 4), dtype=np.float32))
    cls, reg = net(images)
    found = (labels >= 0).float()
    number = found.sum().clamp(min=1.0)  # <- normaliser
    hot = (labels.unsqueeze(-1) == torch.arange(K)).float()
    class_loss = focal_loss(cls, hot) / number  # <- normaliser
    box_loss = (smooth_l1(reg, wanted).sum(-1) * found).sum() / number  # <- normaliser beta
    loss = class_loss + box_loss  # <- normaliser
    sgd.zero_grad()
    loss.backward()
    sgd.step()
    losses.append(loss.item())
