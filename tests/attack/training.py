# SPDX-License-Identifier: Apache-2.0
"""A small training with a gradient formula in Python, for whoever holds it bare against
recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch


class Scale(torch.autograd.Function):
    """A gradient formula in Python, which has a black box of its own."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 1.5

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 1.5


def losses(steps: int) -> Iterator[str]:
    """The loss of each step to its last bit, given out when the step is over."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = Scale.apply(net(torch.randn(5, 8))).square().mean()
        loss.backward()
        optimizer.step()
        yield loss.item().hex()
