# SPDX-License-Identifier: Apache-2.0
"""The same LeNet in PyTorch: lenet_torch.py WEIGHTS.npz PADDING [RATE]. Makes the weights when the
file is not there.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

PADDING = int(sys.argv[2])


class LeNet(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = torch.nn.Conv2d(6, 16, 5, padding=PADDING)
        self.pool = torch.nn.MaxPool2d(2, 2)
        self.relu = torch.nn.ReLU()
        self.flatten = torch.nn.Flatten()
        self.fc1 = torch.nn.Linear(16 * (5 + PADDING) ** 2, 32)
        self.fc2 = torch.nn.Linear(32, 10)

    def forward(self, x):
        x = self.pool(self.relu(self.conv1(x)))
        x = self.pool(self.relu(self.conv2(x)))
        x = self.relu(self.fc1(self.flatten(x)))
        return self.fc2(x)


def make_weights(path: Path) -> None:
    random = np.random.RandomState(0)
    shapes = {
        "x": (2, 1, 28, 28), "conv1_weight": (6, 1, 5, 5), "conv1_bias": (6,),
        "conv2_weight": (16, 6, 5, 5), "conv2_bias": (16,),
        "fc2_weight": (10, 32), "fc2_bias": (10,), "fc1_bias_0": (32,), "fc1_bias_2": (32,),
        "fc1_weight_0": (32, 16 * 25), "fc1_weight_2": (32, 16 * 49),
    }  # fmt: skip
    np.savez(
        path,
        **{name: (random.randn(*shape) * 0.1).astype(np.float32) for name, shape in shapes.items()},
    )


def train(net: LeNet, x: torch.Tensor, rate: float) -> None:
    optimizer = torch.optim.SGD(net.parameters(), rate, momentum=0.9)
    for _ in range(2):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        print(loss.item())


def main() -> None:
    path = Path(sys.argv[1])
    if not path.exists():
        make_weights(path)
    weights = np.load(path)
    net = LeNet().eval()
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            key = f"{name}.{PADDING}" if name.startswith("fc1") else name
            parameter.copy_(torch.from_numpy(weights[key.replace(".", "_")]))
        if not sys.argv[3:]:
            print(net(torch.from_numpy(weights["x"])).sum().item())
    if sys.argv[3:]:
        train(net, torch.from_numpy(weights["x"]), float(sys.argv[3]))


main()
