# SPDX-License-Identifier: Apache-2.0
"""One program on two devices that round otherwise: what cancels, jumps or is never written differs
as it may, and a kernel that is wrong is told all the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import opscope
from opscope.run.finding import Finding

ROUNDED = frozenset(
    [
        "mkldnn_rnn_layer",
        "mm",
        "addmm",
        "bmm",
        "convolution",
        "_log_softmax",
        "_softmax",
        "native_batch_norm",
        "native_layer_norm",
        "sum",
        "mean",
        "exp",
        "log",
        "tanh",
        "gelu",
        "sigmoid",
        "silu",
    ]
)
Program = Callable[[], object]


class Device(TorchDispatchMode):
    """Rounds products, sums and the like otherwise, and makes one operator wrong."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        self._wrong, self._noise = wrong, torch.Generator().manual_seed(7)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        if name == self._wrong:
            return made * 1.01
        if name.removesuffix("_backward") in ROUNDED:
            outputs = [each for each in pytree.tree_leaves(made) if each is not None]
            for each in filter(torch.is_floating_point, outputs):
                noise = torch.randn(each.shape, generator=self._noise)
                each.mul_(1 + 1e-7 * noise)
        return made


def net() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(12, 16), (torch.randn(16, 8) / 4).requires_grad_()


def masked() -> None:
    """Scores below a mask of the least number, whose norm is that number's."""
    x, weight = net()
    scores = (x @ weight).masked_fill(torch.ones(12, 8).triu(2).bool(), torch.finfo().min)
    torch.softmax(scores, -1).square().sum().backward()


def normalised() -> None:
    """The gradient of a bias in front of another norm, a sum that cancels."""
    x, weight = net()
    bias = torch.zeros(8, requires_grad=True)
    scale = torch.ones(8, requires_grad=True)
    h = functional.batch_norm(x @ weight, None, None, scale, bias, training=True)
    functional.batch_norm(h * 2, None, None, training=True).pow(3).sum().backward()


def shifted() -> None:
    """A maximum taken off before a softmax, whose gradient cancels to nothing."""
    x, weight = net()
    h = x @ weight
    e = (h - h.max()).exp()
    (e / e.sum(1, keepdim=True)).square().sum().backward()


def bucketed() -> None:
    """Whole numbers cut off quotients of logarithms that lie on them."""
    x, weight = net()
    place = torch.log(2.0 ** torch.arange(1.0, 9.0)) / math.log(2)
    table = torch.arange(10.0)[place.long()] + (x @ weight).sum(0)
    table.sum().backward()


def aligned() -> None:
    """A loss that leaves memory behind which nobody wrote."""
    x, weight = net()
    scores = functional.log_softmax((x @ weight).view(6, 2, 8), -1)
    targets = torch.tensor([[1, 2, 3], [4, 5, 0]])
    functional.ctc_loss(scores, targets, torch.tensor([6, 6]), torch.tensor([3, 2])).backward()


def tempered() -> None:
    """A number that the program reads and hands on."""
    x, weight = net()
    alpha = torch.exp(torch.tensor(-1.6)).item()
    ((x @ weight) * alpha).sum().backward()


def recurrent() -> None:
    """A layer that hands its own memory to its backward kernel."""
    torch.manual_seed(0)
    layer = torch.nn.LSTM(8, 6, 2, batch_first=True)
    layer(torch.randn(3, 4, 8))[0].square().sum().backward()


def compared(
    program: Program, folder: Path, wrong: str = "", values: str = "anomaly"
) -> tuple[Finding, ...]:
    for name in ("golden", "target"):
        device = Device(wrong) if name == "target" else nullcontext()
        with device, opscope.record(folder / name, values=values):
            program()
    return opscope.compare(folder / "target", folder / "golden").document.findings


@pytest.mark.parametrize("values", ["anomaly", "full"])
@pytest.mark.parametrize(
    "program", [masked, normalised, shifted, bucketed, aligned, tempered, recurrent]
)
def test_a_device_that_rounds_otherwise_is_not_accused(
    program: Program, values: str, tmp_path: Path
) -> None:
    assert compared(program, tmp_path, values=values) == ()


@pytest.mark.parametrize(
    ("program", "wrong"), [(masked, "mm"), (normalised, "mm"), (shifted, "exp"), (aligned, "mm")]
)
def test_a_wrong_kernel_is_told_all_the_same(program: Program, wrong: str, tmp_path: Path) -> None:
    first = compared(program, tmp_path, wrong)[0]
    assert first.op.startswith(f"aten::{wrong}.")
