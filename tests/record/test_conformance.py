# SPDX-License-Identifier: Apache-2.0
"""What `opscope doctor --device` says of a device: the processor stands for one here."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from opscope.kernels.device import lean
from opscope.record.torch import conformance, devices
from opscope.record.torch.devices import Capability
from opscope.record.torch.staging import read

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance, "SMALL", 8192)
    monkeypatch.setattr("opscope.record.torch.staging.SMALL", 8192)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int64", "bool", "complex64"])
def test_types_that_are_measured_agree_in_every_layout(name: str) -> None:
    row = conformance.row_of(CPU, name)
    assert row["small"] == "as on the host"
    assert row["large"].startswith("plain operators (fused kernel: ")


@pytest.mark.parametrize("name", ["float64", "float8_e5m2", "uint32"])
def test_types_that_are_not_say_why(name: str) -> None:
    row = conformance.row_of(CPU, name)
    assert row["small"] == "as on the host"
    assert row["large"].startswith("not measured: ")
    assert "does not know the type" in row["large"]


def wrong(words: Any, dtype: Any, size: int) -> Any:
    found = lean.read(words, dtype, size)
    return found if size == 1 else replace(found, zero=found.zero + 1, pos=found.pos - 1)


def test_a_device_that_counts_wrongly_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "LEAN", dataclasses.replace(devices.LEAN, read=wrong))
    row = conformance.row_of(CPU, "float32")
    assert row["small"] == "as on the host"
    assert "contiguous: zero " in row["large"]
    assert "from the second element on: zero " in row["large"]


def test_a_type_that_answers_wrongly_when_it_is_tried_is_not_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lying(words: Any, dtype: Any, size: int) -> Any:
        return replace(lean.read(words, dtype, size), max=2.0)

    monkeypatch.setattr(devices, "LEAN", dataclasses.replace(devices.LEAN, read=lying))
    capability = Capability(CPU)
    assert capability.way(torch.float32) is None
    assert "answers Statistics" in capability.unmeasured[torch.float32]


def test_a_type_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []

    def failing(torch: Any, tensor: Any, **_: Any) -> Any:
        tried.append(tensor.dtype)
        raise RuntimeError("EZ1001: not for DT_INT16\nand much more")

    monkeypatch.setattr(devices, "LEAN", dataclasses.replace(devices.LEAN, launch=failing))
    capability = Capability(CPU)
    assert [capability.way(torch.int16) for _ in range(3)] == [None] * 3
    assert tried == [torch.int16]
    assert capability.unmeasured[torch.int16].endswith("RuntimeError: EZ1001: not for DT_INT16")


@pytest.mark.parametrize("view", conformance.LAYOUTS)
def test_the_host_reads_every_layout_of_every_float(view: str) -> None:
    for name in ("float8_e4m3fn", "float8_e5m2", "float16", "complex128"):
        tensor = conformance.LAYOUTS[view](conformance.content(24, getattr(torch, name)))
        found = read(tensor)
        assert found is not None
        assert found.size == tensor.numel()
