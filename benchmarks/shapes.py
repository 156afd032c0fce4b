# SPDX-License-Identifier: Apache-2.0
"""Trainings in the shapes that models have, by name: what watching costs depends on how much an
operator computes for each byte.

gpt is the small GPT of gpt.py, in which tensors are large beside the work; gpt2 has GPT-2's width,
heads and feed-forward, four of its twelve blocks and a sixth of its vocabulary; resnet is ResNet-18
on 32 x 32 images; lstm two layers of 512 over 64 words. Those called compiled_… are the same under
torch.compile. Tiny is an MLP of which nothing is left but
what a call costs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
from gpt import GPT, Training
from torch import nn
from torch.nn import functional as F


class Residual(nn.Module):
    """A basic block of ResNet-18."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        stride = 1 + (before != after)
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(after), nn.BatchNorm2d(after)
        self.down: nn.Module = nn.Identity()
        if before != after:
            self.down = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.down(x))


class ResNet(nn.Module):
    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()
        )
        self.blocks = nn.Sequential(
            *(Residual(*widths) for widths in pairwise([64, 64, 64, 128, 128, 256, 256, 512, 512]))
        )
        self.head = nn.Linear(512, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1).flatten(1))


class Recurrent(nn.Module):
    def __init__(self, vocabulary: int = 1024, width: int = 512) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.layers = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.words(words))[0])


class Tiny:
    """Two layers and SGD."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
        self.inputs, self.targets = torch.randn(8, 16), torch.randn(8, 8)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def step(self) -> None:
        self.optimizer.zero_grad()
        nn.functional.mse_loss(self.model(self.inputs), self.targets).backward()
        self.optimizer.step()


def gpt2() -> Training:
    model = GPT(vocabulary=8192, width=768, blocks=4, heads=12, length=256)
    words = torch.randint(0, 8192, (2, 257))
    return Training(model, words[:, :-1], words[:, 1:])


def resnet() -> Training:
    return Training(ResNet(), torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,)))


def lstm() -> Training:
    words = torch.randint(0, 1024, (16, 65))
    return Training(Recurrent(), words[:, :-1], words[:, 1:])


def compiled(make: Callable[[], Training]) -> Training:
    training = make()
    training.model = torch.compile(training.model)
    return training


PLAIN: dict[str, Callable[[], Training]] = {
    "gpt": Training,
    "gpt2": gpt2,
    "resnet": resnet,
    "lstm": lstm,
}
TRAININGS = PLAIN | {f"compiled_{name}": partial(compiled, make) for name, make in PLAIN.items()}
