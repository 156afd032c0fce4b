# SPDX-License-Identifier: Apache-2.0
"""What calls read lately of a device is copied there, and found again when the step is over."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from opscope.kernels import Statistics
from opscope.record.torch import ring as rings
from opscope.record.torch.devices import LEAN, InOrder, Launched
from opscope.record.torch.ring import Ring, can_be_copied, make_ring

CPU = torch.device("cpu")
ELEMENTS = 256  # of a tensor of 1 KiB that a call reads; what it makes takes 64 bytes
CALLS = 4  # that a half has room for, and for a result as large as what is read
HALF = CALLS * (4 * ELEMENTS + 64) + 4 * ELEMENTS
RESULT = 1000  # the version of the first call's
LAYOUTS: dict[str, Callable[[], torch.Tensor]] = {
    "contiguous": lambda: torch.randn(3, 5),
    "transposed": lambda: torch.randn(3, 5).t(),
    "sliced": lambda: torch.randn(4, 9)[1:, 2:7],
    "permuted": lambda: torch.randn(2, 3, 4).permute(2, 0, 1),
    "from the second on": lambda: torch.randn(7)[1:],
    "one number": lambda: torch.randn(()),
    "half": lambda: torch.randn(3, 5).half(),
    "bool": lambda: torch.randn(3, 5) > 0,
    "complex": lambda: torch.randn(3, 5, dtype=torch.complex64),
    "nan": lambda: torch.tensor([float("nan"), -0.0, 1.0]),
}


class Step:
    """A device's ring, and what a step has asked of the device so far."""

    def __init__(self, room: int) -> None:
        self.ring = Ring(torch.zeros(2 * room, dtype=torch.uint8))
        self.launches: list[Launched] = []
        self.stream: Any = InOrder()

    def reads(self, **given: torch.Tensor) -> str | None:
        by_version = {int(name.removeprefix("v")): each for name, each in given.items()}
        return self._put(by_version, made=False)

    def _put(self, given: dict[int, torch.Tensor], *, made: bool) -> str | None:
        return self.ring.put(given, made=made, stream=self.stream, launches=self.launches)

    def makes(self, tensor: torch.Tensor, number: int | None = None) -> None:
        """A call ends: its result is measured, and copied where it has a number."""
        pieces = LEAN.launch(torch, tensor)
        ticket = len(self.launches)
        self.launches.append(Launched(ticket, pieces, LEAN, tensor.dtype, tensor.numel()))
        if number is not None:
            assert self._put({number: tensor}, made=True) is None

    def ends(self) -> list[Statistics]:
        found = [
            each.way.read(torch.cat(each.pieces).numpy(), each.dtype, each.size)
            for each in self.launches
        ]
        self.ring.settle(found, small=False)
        self.launches = []
        return found


def same(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether two tensors have the same elements, bit for bit."""
    return found.shape == expected.shape and (
        found.contiguous().reshape(-1).view(torch.uint8).tolist()
        == expected.contiguous().reshape(-1).view(torch.uint8).tolist()
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_was_read_is_found_as_it_was(layout: str) -> None:
    tensor = LAYOUTS[layout]()
    before = tensor.clone()
    step = Step(1024)
    assert step.reads(v1=torch.ones(3), v2=tensor) is None
    tensor.zero_()
    step.ends()
    assert 2 in step.ring
    assert same(step.ring.held(2), before)
    assert 3 not in step.ring


def test_nothing_lives_longer_for_it() -> None:
    step = Step(1024)
    tensor = torch.ones(8)
    memory = tensor.untyped_storage()._weak_ref()
    step.reads(v1=tensor)
    del tensor
    assert torch.UntypedStorage._expired(memory)  # type: ignore[attr-defined]
    torch.UntypedStorage._free_weak_ref(memory)


def long_step(results: list[torch.Tensor]) -> tuple[Step, list[torch.Tensor]]:
    """A step of so many calls: each reads a tensor of its own and makes one of these."""
    step, read = Step(HALF), list[torch.Tensor]()
    for number, result in enumerate(results):
        read.append(torch.randn(ELEMENTS))
        assert step.reads(**{f"v{number}": read[-1]}) is None
        step.makes(result, RESULT + number)
    step.ends()
    return step, read


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", [0, 3, 4, 5, 7, 8, 20, 38, 39])
def test_what_the_first_unsound_result_was_made_of_stays(where: int, bad: float) -> None:
    """However much is read after it."""
    results = [torch.ones(8) for _ in range(40)]
    results[where][3] = bad
    for later in results[where + 1 :]:
        later[0] = float("nan")
    step, read = long_step(results)
    assert where in step.ring
    assert same(step.ring.held(where), read[where])
    assert same(step.ring.held(RESULT + where), results[where])
    assert step.ring.frozen


def test_a_mask_stops_nothing_and_the_latest_stay() -> None:
    results = [torch.full((8,), float("-inf")) for _ in range(40)]
    step, read = long_step(results)
    assert [number for number in range(40) if number in step.ring] == list(
        range(40 - 2 * CALLS, 40)
    )
    assert all(same(step.ring.held(number), read[number]) for number in range(40 - 2 * CALLS, 40))
    assert not step.ring.frozen


def test_a_step_that_fits_costs_copies_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first half that is full takes the place of the other without a word to the device."""

    def where(*_given: object, **_words: object) -> None:
        raise AssertionError("asked of the device")

    monkeypatch.setattr(torch, "where", where)
    step, _ = long_step([torch.ones(8) for _ in range(2 * CALLS)])
    assert all(number in step.ring for number in range(2 * CALLS))


def test_what_a_call_reads_lies_in_one_half() -> None:
    """What it read before is copied again where the rest has no room beside it."""
    step = Step(HALF)
    weight, tensors = torch.randn(ELEMENTS), torch.randn(40, ELEMENTS)
    for number in range(1, 40):
        result = torch.ones(8)
        result[0] = 1.0 if number < 21 else float("inf")
        step.reads(v0=weight, **{f"v{number}": tensors[number]})
        step.makes(result)
    step.ends()
    assert same(step.ring.held(0), weight)
    assert same(step.ring.held(21), tensors[21])


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_found_is_what_was_read(seed: int) -> None:
    """The host works out by itself what the device decided: over steps, sizes and results."""
    chance, step = random.Random(seed), Step(1 << 12)
    read: dict[int, torch.Tensor] = {}
    for _ in range(5):
        for _ in range(chance.randrange(40)):
            number = chance.randrange(60)
            if number not in read:
                read[number] = torch.randn(chance.randrange(1, 400))
            step.reads(**{f"v{number}": read[number]})
            result = torch.ones(4, dtype=chance.choice([torch.float32, torch.int32, torch.half]))
            if result.is_floating_point() and chance.random() < 0.03:
                result[0] = chance.choice([float("nan"), float("inf"), float("-inf")])
            step.makes(result)
        step.ends()
        found = [number for number in read if number in step.ring]
        assert all(same(step.ring.held(number), read[number]) for number in found)
        step.ring.frozen = False
    assert found


def test_nothing_is_copied_once_the_host_knows() -> None:
    step = Step(1024)
    step.makes(torch.tensor([float("nan")]))
    step.ends()
    step.reads(v1=torch.ones(8))
    assert 1 not in step.ring
    step.ring.frozen = False
    step.reads(v1=torch.ones(8))
    assert 1 in step.ring


def test_what_is_too_large_is_said() -> None:
    step = Step(1024)
    said = step.reads(v1=torch.ones(200), v2=torch.ones(200))
    assert said is not None
    assert "larger than half of the ring" in said
    assert 1 not in step.ring
    step.makes(torch.ones(800), 2)
    assert 2 not in step.ring


def test_what_a_call_made_takes_nothing_from_what_it_read() -> None:
    step = Step(1024)
    step.reads(v1=torch.ones(8))
    step.makes(torch.ones(250), 2)
    step.ends()
    assert 1 in step.ring
    assert 2 not in step.ring


def test_another_stream_waits_for_the_end_of_a_step() -> None:
    step = Step(1024)
    step.stream = "first"
    assert step.reads(v1=torch.ones(8)) is None
    step.stream = "second"
    assert "another stream" in str(step.reads(v2=torch.ones(8)))
    step.ends()
    assert step.reads(v2=torch.ones(8)) is None
    assert 1 in step.ring
    assert 2 in step.ring


def test_what_overlaps_itself_or_is_lazy_is_not_copied() -> None:
    tensor = torch.randn(8)
    assert can_be_copied(tensor)
    assert can_be_copied(tensor.view(2, 4).t())
    assert not can_be_copied(tensor.as_strided((4, 3), (1, 1)))
    assert not can_be_copied(torch.randn(3, dtype=torch.complex64).conj())


def size_of(ring: Ring | None) -> int:
    return 0 if ring is None else ring.size


def test_a_ring_is_as_large_as_a_device_has_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 8 << 20
    assert size_of(make_ring(CPU, size)) == size
    monkeypatch.setattr(rings, "free_memory", lambda _device: 48 << 20)
    assert size_of(make_ring(CPU, size)) == 2 << 20
    monkeypatch.setattr(rings, "free_memory", lambda _device: 1 << 20)
    assert make_ring(CPU, size) is None


def test_a_device_without_memory_gets_a_smaller_ring_or_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original, most = torch.empty, 3 << 20

    def empty(size: int, **given: Any) -> torch.Tensor:
        if size > most:
            raise torch.OutOfMemoryError("NPU out of memory. Tried to allocate much")
        return original(size, **given)

    monkeypatch.setattr(torch, "empty", empty)
    assert size_of(make_ring(CPU, 8 << 20)) == 2 << 20
    most = 0
    assert make_ring(CPU, 8 << 20) is None

    def broken(*_size: int, **_given: Any) -> torch.Tensor:
        raise RuntimeError("the error code is 507015")

    monkeypatch.setattr(torch, "empty", broken)
    with pytest.raises(RuntimeError, match="507015"):
        make_ring(CPU, 8 << 20)
