# SPDX-License-Identifier: Apache-2.0
"""Tensors whose memory is not the host's: statistics are worked out by tensor operators and fetched
at the end of a step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

import opscope
from opscope.record.torch import staging
from opscope.record.torch.binding import TorchBinding
from tests.record.recorded import record


class OnDevice(torch.Tensor):
    """Stands for a tensor on an accelerator: the recorder is told that it cannot be read from the
    host.
    """


def facts_of_a_device(tensor: torch.Tensor) -> Any:
    facts = ORIGINAL(tensor)
    if isinstance(tensor, OnDevice):
        return replace(facts, device="npu:0", tensor_class=None, readable=False, staged=True)
    return facts


ORIGINAL = TorchBinding.facts


@pytest.mark.parametrize("plain", [False, True])
def test_statistics_arrive_with_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, plain: bool
) -> None:
    monkeypatch.setattr(TorchBinding, "facts", staticmethod(facts_of_a_device))

    def program() -> None:
        torch.tensor([1.0, 2.0, -3.0]).as_subclass(OnDevice) * 2
        torch.tensor([[float("inf"), 1.0]]).as_subclass(OnDevice).expand(3, 2) + 1

    found = record(tmp_path, program, plain=plain)
    (multiply,) = found.all("aten::mul.Tensor")
    row = found.inputs(multiply)["0"]
    assert (row.min, row.max, row.size, row.device) == (-3.0, 2.0, 3, "npu:0")
    assert row.digest is not None
    (add,) = found.all("aten::add.Tensor")
    row = found.inputs(add)["0"]
    assert (row.pos_inf, row.size, row.max) == (3, 6, 1.0)


@pytest.mark.parametrize("plain", [False, True])
def test_large_tensors_are_measured_where_they_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, plain: bool
) -> None:
    monkeypatch.setattr(TorchBinding, "facts", staticmethod(facts_of_a_device))
    monkeypatch.setattr(staging, "SMALL", 16)

    large = torch.tensor([1.0, float("nan"), -65504.0, 3.0, 0.0, float("-inf")]).as_subclass(
        OnDevice
    )
    wide = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64).as_subclass(OnDevice)

    def program() -> None:
        large * 2
        wide + 1

    found = record(tmp_path, program, plain=plain)
    row = found.inputs(found.all("aten::mul.Tensor")[0])["0"]
    assert (row.size, row.nan, row.neg_inf, row.zero, row.neg, row.min, row.max) == (
        6,
        1,
        1,
        1,
        1,
        -65504.0,
        3.0,
    )
    assert (row.digest, row.near_limit) == (None, 0)
    assert found.inputs(found.all("aten::add.Tensor")[0])["0"].size is None, (
        "not every device has float64"
    )


@pytest.mark.parametrize("plain", [False, True])
def test_a_device_that_fails_costs_its_statistics_only(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    *,
    plain: bool,
) -> None:
    monkeypatch.setattr(TorchBinding, "facts", staticmethod(facts_of_a_device))

    def failing(device: torch.device, *given: object) -> None:
        raise RuntimeError("error code is 507015\nand much more")

    monkeypatch.setattr(staging, "fetched", failing)

    tensors = [torch.tensor([1.0, 2.0]).as_subclass(OnDevice) for _ in range(3)]

    def program() -> None:
        for tensor in tensors:
            tensor * 2
            opscope.mark_step()

    found = record(tmp_path, program, plain=plain)
    calls = found.all("aten::mul.Tensor")
    assert len(calls) == 3
    assert [found.inputs(call)["0"].size for call in calls] == [None] * 3
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "opscope" in line]
    assert "507015" in line


def test_values_of_device_tensors_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TorchBinding, "facts", staticmethod(facts_of_a_device))
    tensor = torch.tensor([1.0, 2.0]).as_subclass(OnDevice)
    found = record(tmp_path, lambda: tensor * 2, values="full")
    row = found.inputs(found.all("aten::mul.Tensor")[0])["0"]
    assert row.value is not None
