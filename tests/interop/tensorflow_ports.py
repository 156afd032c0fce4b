# SPDX-License-Identifier: Apache-2.0
"""Nets of PyTorch that tensorflow_nets.py has in TensorFlow: python tensorflow_ports.py NET FILE
trains one of them for three steps, and keeps the weights it began with in FILE.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional

GENERATOR = np.random.default_rng(7)


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.norm = nn.LayerNorm(16, eps=1e-3)
        self.last = nn.Linear(16, 4)

    def forward(self, x):
        return self.last(self.norm(functional.gelu(self.first(x))))


class Conv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8, eps=1e-3, momentum=0.01)
        self.two = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.norm(self.one(x))), 2)
        x = functional.relu(self.two(x))
        return self.head(x.mean((2, 3)))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(32, 16)
        self.before = nn.LayerNorm(16, eps=1e-5)
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))
        self.out = nn.Linear(16, 16)
        self.after = nn.LayerNorm(16, eps=1e-5)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
        self.head = nn.Linear(16, 4)

    def attention(self, x):
        n, t, _ = x.shape
        q, k, v = (
            part(x).reshape(n, t, 2, 8).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(2, 3) / 8**0.5
        mixed = scores.softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(n, t, 16))

    def forward(self, x):
        x = self.words(x)
        x = x + self.attention(self.before(x))
        x = x + self.down(functional.gelu(self.up(self.after(x))))
        return self.head(x.mean(1))


NETS = {"mlp": Mlp, "conv": Conv, "transformer": Transformer}
SHAPES = {"mlp": (6, 8), "conv": (6, 3, 8, 8), "transformer": (6, 5)}


def data(net: str) -> tuple[np.ndarray, np.ndarray]:
    shape = (18, *SHAPES[net][1:])
    if net == "transformer":
        x = GENERATOR.integers(0, 32, shape)
    else:
        x = GENERATOR.standard_normal(shape).astype("float32")
    return x, GENERATOR.integers(0, 4, (18,))


def main(name: str, file: str) -> None:
    torch.manual_seed(1)
    net = NETS[name]()
    x, y = data(name)
    np.savez(file, **{key: value.numpy() for key, value in net.state_dict().items()})
    if name == "conv":
        optimizer: torch.optim.Optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
    else:
        optimizer = torch.optim.Adam(net.parameters(), 0.01, eps=1e-7)
    for start in range(0, 18, 6):
        logits = net(torch.from_numpy(x[start : start + 6]))
        loss = functional.cross_entropy(logits, torch.from_numpy(y[start : start + 6]))
        optimizer.zero_grad()
        loss.backward()
        step = start // 6 + 1
        for group in (
            optimizer.param_groups if name != "conv" else ()
        ):  # Keras adds it before the second moment is corrected
            group["eps"] = 1e-7 / (1 - 0.999**step) ** 0.5
        optimizer.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
