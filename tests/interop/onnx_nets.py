# SPDX-License-Identifier: Apache-2.0
"""Small models to export, each with what it is given twice; as a program it executes one of them."""

from __future__ import annotations

import math
import sys

import torch
from torch import Tensor, nn
from torch.nn import functional


class UNet(nn.Module):
    """Down, up, and what was before beside it; the exporter folds batch norms into products."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.down = nn.Sequential(
            nn.Conv2d(8, 16, 3, padding=1, stride=2), nn.GroupNorm(4, 16), nn.SiLU()
        )
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.last = nn.Conv2d(16, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = self.first(x)
        y = self.up(self.down(kept))
        y = self.last(torch.cat([y, kept], 1))
        return functional.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)


class Recurrent(nn.Module):
    """Two layers of an LSTM in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 12)
        self.cells = nn.LSTM(12, 16, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, 5)

    def forward(self, words: Tensor) -> tuple[Tensor, Tensor]:
        y, (state, _) = self.cells(self.words(words))
        return self.head(y.mean(1)), state


class Gpt(nn.Module):
    """Two blocks of a decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 32)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(32, 50)

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Block(nn.Module):
    """Masked attention and a perceptron, each behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(32), nn.LayerNorm(32)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.wide, self.narrow = nn.Linear(32, 128), nn.Linear(128, 32)

    def forward(self, x: Tensor) -> Tensor:
        batch, words, width = x.shape
        parts = self.qkv(self.before(x)).chunk(3, -1)
        q, k, v = (part.reshape(batch, words, 4, -1).transpose(1, 2) for part in parts)
        mask = torch.full((words, words), -math.inf).triu(1)
        scores = q @ k.transpose(-1, -2) / math.sqrt(8) + mask
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, words, width)
        x = x + self.out(y)
        return x + self.narrow(functional.gelu(self.wide(self.between(x))))


class Encoder(nn.Module):
    """torch's own encoder, which it computes in one call where it infers."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(24, 4, 48, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(24, 7)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x)).log_softmax(-1)


class Mobile(nn.Module):
    """Products of single channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, 2, 1)
        self.each = nn.Conv2d(8, 8, 3, 1, 1, groups=8, bias=False)
        self.norm, self.act = nn.BatchNorm2d(8), nn.Hardswish()
        self.head = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.norm(self.each(self.first(x))))
        return self.head(y.mean((2, 3)))


class Boxes(nn.Module):
    """Boxes, and the best of their scores."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Conv2d(3, 12, 3, padding=1), nn.Conv2d(12, 6, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = self.head(functional.leaky_relu(self.first(x), 0.1))
        y = y.view(len(x), 6, -1).transpose(1, 2)
        middle = y[..., :2].sigmoid() * 2 - 0.5
        size = (y[..., 2:4].sigmoid() * 2) ** 2
        scores, _ = y[..., 4:].softmax(-1).max(-1)
        best, which = scores.topk(5, dim=1)
        return torch.cat([middle, size], -1), best, which


SHAPES: dict[str, tuple[int, ...]] = {
    "UNet": (2, 3, 16, 16),
    "Recurrent": (3, 7),
    "Gpt": (2, 7),
    "Encoder": (2, 6, 24),
    "Mobile": (2, 3, 16, 16),
    "Boxes": (2, 3, 8, 8),
}


def net(name: str) -> nn.Module:
    """The model of that name, the same each time."""
    torch.manual_seed(0)
    made: nn.Module = globals()[name]()
    for part in made.modules():
        if isinstance(part, nn.BatchNorm2d):
            assert part.running_var is not None
            assert part.running_mean is not None
            part.running_var.uniform_(0.5, 2)
            part.running_mean.normal_()
    return made.eval()


def inputs(name: str) -> list[Tensor]:
    """What it is given, twice."""
    torch.manual_seed(1)
    shape = SHAPES[name]
    return [
        torch.randint(0, 20, shape) if len(shape) == 2 else torch.randn(shape) for _ in range(2)
    ]


if __name__ == "__main__":
    model = net(sys.argv[1])
    with torch.no_grad():
        for given in inputs(sys.argv[1]):
            model(given)
