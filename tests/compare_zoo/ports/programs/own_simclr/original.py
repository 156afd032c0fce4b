# SPDX-License-Identifier: Apache-2.0
"""SimCLR on a small residual net with BatchNorm; at the end the loss of a held-out batch in eval."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

BATCH, SIZE, TEMPERATURE = 6, 12, 0.5


class BasicBlock(nn.Module):
    def __init__(self, inplanes, planes, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride, 1, bias=False)  # <- padded
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = None
        if stride != 1:
            self.downsample = nn.Sequential(
                nn.Conv2d(inplanes, planes, 1, stride, bias=False), nn.BatchNorm2d(planes)
            )

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = F.relu(self.bn1(self.conv1(x)))  # <- padded variance
        return F.relu(self.bn2(self.conv2(out)) + identity)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.layer1 = BasicBlock(8, 8, 1)
        self.layer2 = BasicBlock(8, 12, 2)
        self.layer3 = BasicBlock(12, 16, 2)
        self.projector = nn.Sequential(
            nn.Linear(16 * 3 * 3, 20, bias=False),  # <- flattened
            nn.BatchNorm1d(20),
            nn.ReLU(),
            nn.Linear(20, 10),
        )

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))  # <- variance
        x = self.layer3(self.layer2(self.layer1(x)))
        return F.normalize(self.projector(torch.flatten(x, 1)), dim=1)  # <- flattened


def nt_xent(z):
    logits = z @ z.t() / TEMPERATURE
    logits = logits.masked_fill(torch.eye(len(z), dtype=torch.bool), float("-inf"))  # <- itself
    target = (torch.arange(len(z)) + BATCH) % len(z)
    return F.cross_entropy(logits, target)  # <- itself


def augment(images, generator):
    flipped = torch.rand(BATCH, generator=generator) < 0.5
    images = torch.where(flipped[:, None, None, None], images.flip(3), images)
    brightness = torch.rand(BATCH, 1, 1, 1, generator=generator) + 0.5
    return images * brightness + 0.1 * torch.randn(images.shape, generator=generator)


def two_views(generator):
    images = torch.randn(BATCH, 3, SIZE, SIZE, generator=generator)
    return torch.cat((augment(images, generator), augment(images, generator)))


torch.manual_seed(21)
model = Encoder()
torch.save(model.state_dict(), sys.argv[1])
decayed = [p for p in model.parameters() if p.dim() > 1]  # <- decay
others = [p for p in model.parameters() if p.dim() <= 1]  # <- decay
optimizer = torch.optim.SGD(
    [{"params": decayed, "weight_decay": 0.05}, {"params": others}],  # <- decay
    lr=0.05,
    momentum=0.9,
    nesterov=True,
)  # <- decay
generator = torch.Generator().manual_seed(22)
losses = []
for _ in range(3):
    loss = nt_xent(model(two_views(generator)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- decay
    losses.append(loss.item())
model.eval()
with torch.no_grad():
    losses.append(nt_xent(model(two_views(generator))).item())
