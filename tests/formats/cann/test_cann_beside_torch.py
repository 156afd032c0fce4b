# SPDX-License-Identifier: Apache-2.0
"""A device's dump of a model beside a recording of the same model in PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cann_dumps import dump, operator

import opscope
from opscope.operators.catalogue import family

torch = pytest.importorskip("torch")


def model() -> Any:
    """A small network that only evaluates."""
    torch.manual_seed(0)
    layers = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(512, 10),
        torch.nn.Softmax(-1),
    )
    return layers.eval()


def device(root: Path, net: Any, values: Any, wrong: float) -> Path:
    """The operators that the device would run, under its own names; the ReLU is wrong by a
    factor.
    """
    kinds = ("Conv2D", "BNInfer", "Relu", None, "MatMulV2", "SoftmaxV2")
    for number, (kind, layer) in enumerate(zip(kinds, net, strict=True), 1):
        following = layer(values) * (wrong if kind == "Relu" else 1)
        if kind is not None:
            held = [*layer.parameters(), *(buffer for buffer in layer.buffers() if buffer.ndim)]
            operator(
                root / f"{kind}.op_{number}.{number}.1.{1650000000000000 + number}",
                [_raw(one) for one in (values, *held)],
                [_raw(following)],
            )
        values = following
    return root


def _raw(tensor: Any) -> Any:
    array = tensor.detach().numpy()
    return dump(array, "NCHW" if array.ndim == 4 else "ND", array.shape)


@pytest.mark.parametrize("wrong", [1.0, 1.1])
def test_operators_meet_by_what_they_compute(tmp_path: Path, wrong: float) -> None:
    net, values = model(), torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        with opscope.record(tmp_path / "run", values="full"):
            net(values)
        dumped = device(tmp_path / "npu", net, values, wrong)
    comparison = opscope.compare(dumped, tmp_path / "run")
    first = comparison.first()
    if wrong == 1.0:
        assert first is None
        assert comparison.document.summary["calls"]["matched"] == 5
        assert comparison.document.summary["tensors"]["differ"] == 0
    else:
        assert first is not None
        assert family(first.op or "") == "relu"
