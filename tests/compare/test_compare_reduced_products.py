# SPDX-License-Identifier: Apache-2.0
"""Products of float32 that a device computes with fewer bits, where torch's settings let it, are no
difference; where these do not, or of another kind of product, they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import opscope
from opscope.kernels import compiled
from opscope.record.torch.binding import TorchBinding

FACTS = TorchBinding.facts
LAYERS = {"convolution", "convolution_backward"}


class Shortened(TorchDispatchMode):
    """Hands some products numbers with ten bits behind the point."""

    def __init__(self, ops: set[str]) -> None:
        super().__init__()
        self._ops = ops

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.name.removeprefix("aten::") in self._ops:
            args = [shortened(each) for each in args]
        return func(*args, **(kwargs or {}))


def shortened(value: Any) -> Any:
    if not (isinstance(value, torch.Tensor) and value.dtype is torch.float32):
        return value
    bits = value.contiguous().view(torch.int32)
    return ((bits + (1 << 12)) & ~((1 << 13) - 1)).view(torch.float32).view_as(value)


@contextmanager
def on_cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is recorded is said to lie on a GPU."""

    def facts(tensor: torch.Tensor) -> Any:
        return replace(FACTS(tensor), device="cuda:0")

    with monkeypatch.context() as patch:
        patch.setattr(TorchBinding, "facts", staticmethod(facts))
        patch.setattr(compiled, "load_recorder", lambda: None)  # which asks no facts of the host's
        yield


def train() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.GELU()
    )
    net.extend([nn.Flatten(), nn.Linear(8 * 64, 16), nn.LayerNorm(16), nn.Linear(16, 4)])
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9)
    x = torch.randn(4, 3, 12, 12)
    for _ in range(2):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), torch.arange(4)).backward()
        optimizer.step()


def findings(
    folder: Path, monkeypatch: pytest.MonkeyPatch, ops: set[str], device: Any = on_cuda
) -> tuple[Any, ...]:
    with opscope.record(folder / "golden"):
        train()
    with device(monkeypatch), Shortened(ops), opscope.record(folder / "target"):
        train()
    document = opscope.compare(folder / "target", folder / "golden").document
    said = [line for line in document.summary["warnings"] if "shorten" in line]
    let = device is on_cuda and torch.backends.cudnn.allow_tf32
    assert [line[:6] for line in said] == ["target"] * let
    return document.findings


def test_shortened_convolutions_are_what_cudnn_is_let_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert torch.backends.cudnn.allow_tf32  # torch's own default
    assert findings(tmp_path, monkeypatch, LAYERS) == ()


def test_where_the_program_does_not_let_it_they_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.backends.cudnn.allow_tf32 = False
    try:
        found = findings(tmp_path, monkeypatch, LAYERS)
    finally:
        torch.backends.cudnn.allow_tf32 = True
    assert found[0].op == "aten::convolution.default"


def test_a_host_shortens_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = findings(tmp_path, monkeypatch, LAYERS, device=lambda _: nullcontext())
    assert found[0].op == "aten::convolution.default"


def test_more_than_shortened_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def off(self: Shortened, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        return made * 1.05 if func._schema.name == "aten::convolution" else made

    monkeypatch.setattr(Shortened, "__torch_dispatch__", off)
    found = findings(tmp_path, monkeypatch, set())
    assert found[0].op == "aten::convolution.default"
