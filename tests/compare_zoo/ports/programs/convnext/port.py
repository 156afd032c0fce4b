# SPDX-License-Identifier: Apache-2.0
"""The same ConvNeXt with channels first all the way: pointwise convolutions for products, one norm
over channels, and metrics on the way that nobody trains on.
"""

import sys

import numpy as np
import torch
from torch import nn

CHANNELS, BLOCKS, LABELS = (8, 12), (1, 2), 5


class ChannelNorm(nn.Module):
    def __init__(self, channels, eps=1e-6):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(channels).normal_())
        self.shift = nn.Parameter(torch.empty(channels).normal_())
        self.eps = eps

    def forward(self, x):
        var, mean = torch.var_mean(x, dim=1, keepdim=True, correction=0)  # <- first_norm
        x = (x - mean) * torch.rsqrt(var + self.eps)  # <- first_norm eps
        return x * self.scale.view(1, -1, 1, 1) + self.shift.view(1, -1, 1, 1)


class NextBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.mix = nn.Conv2d(channels, channels, 7, padding="same", groups=channels)
        self.norm = ChannelNorm(channels)
        self.widen, self.narrow = (
            nn.Conv2d(channels, 4 * channels, 1),
            nn.Conv2d(4 * channels, channels, 1),
        )
        self.gain = nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(self, x):
        y = self.mix(x)  # <- kernel
        y = self.widen(self.norm(y))
        y = 0.5 * y * (1 + torch.erf(y * 0.5**0.5))
        y = self.narrow(y)  # <- gamma
        return x + self.gain * y  # <- gamma residual


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, CHANNELS[0], kernel_size=4, stride=4),
            ChannelNorm(CHANNELS[0]),
            *[NextBlock(CHANNELS[0]) for _ in range(BLOCKS[0])],
            ChannelNorm(CHANNELS[0]),
            nn.Conv2d(CHANNELS[0], CHANNELS[1], kernel_size=2, stride=2),
            *[NextBlock(CHANNELS[1]) for _ in range(BLOCKS[1])],
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.last = ChannelNorm(CHANNELS[1])
        self.classifier = nn.Conv2d(CHANNELS[1], LABELS, 1)

    def forward(self, images):
        x = self.pool(self.features(images))  # <- pool kernel
        return self.classifier(self.last(x)).flatten(1)  # <- pool


PLACES = {"downsample_layers.0.0": "features.0", "downsample_layers.0.1": "features.1"}
PLACES |= {"stages.0.0": "features.2", "downsample_layers.1.0": "features.3"}
PLACES |= {
    "downsample_layers.1.1": "features.4",
    "stages.1.0": "features.5",
    "stages.1.1": "features.6",
}
WORDS = {
    "dwconv": "mix",
    "pwconv1": "widen",
    "pwconv2": "narrow",
    "gamma": "gain",
    "head": "classifier",
}


def ported(state, model):
    mine = model.state_dict()
    for name, value in state.items():
        new = name
        for old, place in PLACES.items():
            new = new.replace(old, place) if new.startswith(old) else new
        new = ".".join(WORDS.get(word, word) for word in new.split("."))
        new = "last." + new[5:] if new.startswith("norm.") else new
        if new not in mine:
            new = new.replace("weight", "scale").replace("bias", "shift")
        mine[new].copy_(value.view_as(mine[new]))  # <- kernel


net = Network()
with torch.no_grad():
    ported(torch.load(sys.argv[1]), net)
ema = [p.detach().clone() for p in net.parameters()]
sgd = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)
criterion = nn.CrossEntropyLoss()
rng = np.random.default_rng(6)
losses, accuracies, norms = [], [], []
for _ in range(3):
    images = torch.from_numpy(rng.standard_normal((4, 3, 16, 16), dtype=np.float32))
    labels = torch.from_numpy(rng.integers(0, LABELS, 4))
    scores = net(images)
    loss = criterion(scores, labels)
    accuracies.append((scores.argmax(1) == labels).float().mean().item())
    sgd.zero_grad()
    loss.backward()
    norms.append(sum(p.grad.norm() ** 2 for p in net.parameters()).sqrt().item())
    sgd.step()  # <- nesterov
    with torch.no_grad():
        for slow, fast in zip(ema, net.parameters()):
            slow.lerp_(fast, 0.1)  # <- average
    losses.append(loss.item())
with torch.inference_mode():
    for slow, fast in zip(ema, net.parameters()):
        fast.copy_(slow)
    losses.append(criterion(net(images), labels).item())  # <- average
