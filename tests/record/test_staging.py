# SPDX-License-Identifier: Apache-2.0
"""Tensors whose memory is not the host's: statistics are worked out by tensor operators and fetched at the end of a step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from opscope.record.torch.binding import TorchBinding
from tests.record.recorded import record


class OnDevice(torch.Tensor):
    """Stands for a tensor on an accelerator: the recorder is told that it cannot be read from the host."""


def facts_of_a_device(tensor: torch.Tensor) -> Any:
    facts = ORIGINAL(tensor)
    if isinstance(tensor, OnDevice):
        return replace(facts, device="npu:0", tensor_class=None, readable=False, staged=True)
    return facts


ORIGINAL = TorchBinding.facts


@pytest.mark.parametrize("plain", [False, True])
def test_statistics_arrive_with_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, plain: bool) -> None:
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
