# SPDX-License-Identifier: Apache-2.0
"""The overflow status of devices that saturate: read once a step, never cleared, nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch

from opscope.kernels.device import lean
from opscope.record.torch import staging
from opscope.record.torch.devices import LEAN, WITHOUT_SUMS, Capability
from opscope.record.torch.float_status import MOST_STRETCHES, FloatStatus
from opscope.record.torch.staging import Staging


def noted(*raised: bool) -> FloatStatus:
    status = FloatStatus()
    for step, now in enumerate(raised):
        status.note(step, {"npu:0": now})
    return status


def test_steps_in_which_it_was_raised() -> None:
    facts = noted(False, True, True, False, True).facts()
    assert facts == {"npu:0": {"read": [0, 4], "raised": [[1, 1, 2], [4, 4, 4]]}}


def test_only_what_is_new_is_news() -> None:
    status = FloatStatus()
    read = (False, True, True, False, True)
    assert [status.note(step, {"npu:0": now}) for step, now in enumerate(read)] == [
        *(False, True, False, False, True)
    ]


def test_steps_that_nobody_asked_about_are_among_those_it_may_have_been() -> None:
    status = FloatStatus()
    for step, now in ((2, False), (6, True)):
        status.note(step, {"npu:0": now})
    assert status.facts()["npu:0"] == {"read": [2, 6], "raised": [[3, 6, 6]]}
    first = FloatStatus()
    first.note(4, {"npu:0": True})
    assert first.facts()["npu:0"]["raised"] == [[0, 4, 4]], "it may have been so before"


def test_what_is_kept_is_bounded() -> None:
    assert not noted(*[False, True] * (MOST_STRETCHES - 1)).full
    assert noted(*[False, True] * MOST_STRETCHES).full


def test_where_nothing_saturates_nothing_is_kept() -> None:
    status = FloatStatus()
    assert not status.note(0, {})
    assert status.facts() == {}


@dataclass(eq=False)
class Saturating(Capability):
    """The CPU as a device whose results end at the limit of their type."""

    saturates: bool = True  # type: ignore[assignment]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[torch.device]]:
    found: list[torch.device] = []

    def read(device: torch.device) -> bool:
        found.append(device)
        return len(found) > 1

    monkeypatch.setattr(staging, "overflow_status", read)
    return found


def test_a_device_is_asked_where_it_saturates(asked: list[torch.device]) -> None:
    saturating = Staging(pytest.fail, capability=Saturating)
    assert saturating.overflow_statuses() == {}, "nobody has met it yet"
    saturating.stage(torch.ones(3))
    assert saturating.overflow_statuses() == {"cpu": False}
    assert saturating.overflow_statuses() == {"cpu": True}
    other = Staging(pytest.fail)
    other.stage(torch.ones(3))
    assert other.overflow_statuses() == {}
    assert len(asked) == 2


def test_a_device_that_cannot_tell_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(_: torch.device) -> bool:
        raise RuntimeError("no such operator")

    monkeypatch.setattr(staging, "overflow_status", refuses)
    told: list[tuple[str, str]] = []
    found = Staging(pytest.fail, lambda *words: told.append(words), capability=Saturating)
    found.stage(torch.ones(3))
    assert [found.overflow_statuses(), found.overflow_statuses()] == [{}, {}]
    assert told == [("cpu overflow status", "RuntimeError: no such operator")]
    assert found.fetch()[0][1] is not None, "it still answers"


@pytest.mark.parametrize("name", sorted({*lean.NAMES} - {"complex64"}))
def test_own_sums_raise_no_status(name: str) -> None:
    dtype = getattr(torch, name)
    way = Saturating(torch.device("cpu"), fused_on=()).way(dtype)
    assert way is not None
    assert way.title == (LEAN if name in lean.SUMMED_SAFELY else WITHOUT_SUMS).title
    elsewhere = Capability(torch.device("cpu"), fused_on=()).way(dtype)
    assert elsewhere is not None
    assert elsewhere.title == LEAN.title
    largest = torch.finfo(dtype) if dtype.is_floating_point else None
    tensor = torch.full((1 << 10,), 1 if largest is None else largest.max, dtype=dtype)
    found = way.read(torch.cat(way.launch(torch, tensor)).numpy(), dtype, tensor.numel())
    assert (found.mean is None) == (found.l2norm is None) == (way.title == WITHOUT_SUMS.title)
    assert found.max == float(tensor[0])
