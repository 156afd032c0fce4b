# SPDX-License-Identifier: Apache-2.0
"""A small training: drifting.py as-is STEPS, rounding SEED STEPS (products rounded up or down at
random), bias STEPS (products too small by less than is allowed, all of them), seed SEED STEPS
(other weights).
"""

from __future__ import annotations

import sys

import torch
from torch import nn

BIAS = 6e-6


def main(mode: str, *numbers: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(int(numbers[0]) if mode == "seed" else 0)
    chance = torch.Generator().manual_seed(int(numbers[0]))
    library = torch.library.Library("aten", "IMPL")

    def product(bias, x, weight, *, beta=1, alpha=1):
        exact = beta * bias.double() + alpha * (x.double() @ weight.double())
        off = (
            -BIAS
            if mode == "bias"
            else 2.0**-23 * (torch.rand(exact.shape, generator=chance) - 0.5)
        )
        return (exact * (1 + off)).to(x.dtype)

    if mode in ("bias", "rounding"):
        library.impl("addmm", product, "CPU")
    net = nn.Sequential(
        nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4)
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for number in range(int(numbers[-1])):
        torch.manual_seed(1000 + number)
        x, y = torch.randn(32, 16), torch.randint(0, 4, (32,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
