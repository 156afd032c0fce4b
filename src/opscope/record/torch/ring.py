# SPDX-License-Identifier: Apache-2.0
"""What calls read and made lately on a device, copied there in stream order: nothing waits, nothing
travels, and no tensor lives longer for it.

What an origin read is wanted when its step is over, and by then a long step has read far more than
any ring holds. So the device itself stops turning: of the two halves one is filled, and when it is
full it takes the place of the other only where no large tensor held NaN or +Inf before it was
begun. What stays are the half in which one first did, with all that its call read, and the half
that is open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from opscope.kernels import Statistics
from opscope.record.torch.devices import InOrder, Launched, ran_out, unsound
from opscope.record.torch.memory import overlaps_itself

ALIGNED = 64
LEAST = 1 << 20  # bytes of a ring that is worth its name
PART = 16  # of the memory that is free on a device, one such part at most becomes a ring


@dataclass(frozen=True)
class Place:
    """Where the elements of a version lie in a half: dense, axes in the order of memory."""

    start: int
    end: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    axes: tuple[int, ...]

    def of(self, half: torch.Tensor) -> torch.Tensor:
        """The elements there, in the order of memory: on both sides of a copy they lie alike."""
        return half[self.start : self.end].view(self.dtype).view(self.shape)

    def ordered(self, elements: torch.Tensor) -> torch.Tensor:
        """The tensor that these elements are, its axes in its own order."""
        return elements.permute([self.axes.index(axis) for axis in range(len(self.axes))])


@dataclass(frozen=True)
class Turn:
    """A half that was full: what lies in it, and how many launches of the step there were before it
    was begun.
    """

    places: Mapping[int, Place]
    began: int


class Ring:
    """The two halves of a device's memory, and which version lies where.

    frozen: something unsound has been made in this step, as the host knows; nothing is copied then.
    """

    def __init__(self, memory: torch.Tensor) -> None:
        self._open, self._kept = memory.chunk(2)
        self._in_open: dict[int, Place] = {}
        self._in_kept: Mapping[int, Place] = {}
        self._used = 0
        self._began = 0
        self._turns: list[Turn] = []
        self._stream: Any = None
        self.frozen = False

    def put(
        self,
        given: Mapping[int, torch.Tensor],
        *,
        made: bool,
        stream: Any,
        launches: Sequence[Launched],
    ) -> str | None:
        """Copy what a call is about to read, by version, all of it into one half, or behind it what
        the call has made; launches are those of the step so far. Answers why what it reads is not
        copied, None where it is.
        """
        if self.frozen:
            return None
        if room_for(given.values()) > len(self._open):
            return None if made else "the tensors of a call are larger than half of the ring"
        if not self._ordered(stream):
            return "the ring is written in another stream"
        fresh = {number: given[number] for number in given if number not in self._in_open}
        wanted = self._used + room_for(fresh.values())
        if made and wanted > len(self._open):
            return None
        # what it makes is taken to be no larger than the largest that it reads
        if not made and wanted + max(map(room_of, given.values())) > len(self._open) and self._used:
            self._turn(launches)
            fresh = dict(given)
        for number, tensor in fresh.items():
            self._copy(number, tensor)
        return None

    @property
    def size(self) -> int:
        """Bytes of both halves."""
        return len(self._open) + len(self._kept)

    def __contains__(self, number: int) -> bool:
        """Whether a version is here, once everything has settled."""
        return number in self._in_open or number in self._in_kept

    def held(self, number: int) -> torch.Tensor:
        """A version that is here, as the host can read it."""
        opened = self._in_open.get(number)
        half, span = (self._kept, self._in_kept[number]) if opened is None else (self._open, opened)
        return span.ordered(span.of(half).cpu())

    def settle(self, measured: Sequence[Statistics | None], *, small: bool) -> None:
        """All that was asked for has arrived: of the launches in their order, and whether something
        small was unsound. Now the host knows, too, where the device stopped turning.
        """
        for turn in self._turns:
            if not any(map(is_unsound, measured[: turn.began])):
                self._in_kept = turn.places
        self._turns, self._began, self._stream = [], 0, None
        self.frozen |= small or any(map(is_unsound, measured))

    def _ordered(self, stream: Any) -> bool:
        """Whether work in this stream follows what was done to the ring; all streams have been
        waited for when it settles.
        """
        if self._stream is None:
            self._stream = stream
        return isinstance(stream, InOrder) or bool(stream == self._stream)

    def _turn(self, launches: Sequence[Launched]) -> None:
        """The open half is full: it takes the place of the other, or the device leaves that as it
        is.
        """
        before = unsound(launches[: self._began])
        if before is None:
            self._open, self._kept = self._kept, self._open
        else:
            open_words, kept_words = (half.view(torch.int32) for half in (self._open, self._kept))
            torch.where(before, kept_words, open_words, out=kept_words)
        self._turns.append(Turn(self._in_open, self._began))
        self._in_open, self._used, self._began = {}, 0, len(launches)

    def _copy(self, number: int, tensor: torch.Tensor) -> None:
        strides = tensor.stride()
        axes = tuple(sorted(range(tensor.dim()), key=lambda axis: -strides[axis]))
        shape = tuple(tensor.shape[axis] for axis in axes)
        span = Place(self._used, self._used + tensor.nbytes, tensor.dtype, shape, axes)
        span.of(self._open).copy_(tensor.permute(axes), non_blocking=True)
        self._in_open[number] = span
        self._used += room_of(tensor)


def room_of(tensor: torch.Tensor) -> int:
    """Bytes of a half that a tensor takes."""
    return -(-tensor.nbytes // ALIGNED) * ALIGNED


def room_for(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of a half that these take."""
    return sum(map(room_of, tensors))


def is_unsound(measured: Statistics | None) -> bool:
    """What a ring stops at, which lean.unsound and fused.unsound ask on the device: not at -inf,
    which is a mask nearly everywhere.
    """
    return measured is not None and bool(measured.nan or measured.pos_inf)


def can_be_copied(tensor: torch.Tensor) -> bool:
    """Whether a tensor's memory is its elements, each in a place of its own."""
    return not (tensor.is_conj() or tensor.is_neg() or overlaps_itself(tensor))


def make_ring(device: torch.device, size: int) -> Ring | None:
    """A ring of so many bytes, or of fewer where the device has little memory left; None where it
    has none.
    """
    free = free_memory(device)
    while size >= LEAST and free is not None and size * PART > free:
        size //= 2
    while size >= LEAST:
        memory = memory_of(device, size // 2 // ALIGNED * ALIGNED * 2)
        if memory is not None:
            return Ring(memory)
        size //= 2
    return None


def memory_of(device: torch.device, size: int) -> torch.Tensor | None:
    """So many bytes of a device; None where it has them not."""
    try:
        return torch.empty(size, dtype=torch.uint8, device=device)
    except RuntimeError as error:
        if not ran_out(error):
            raise
        return None


def free_memory(device: torch.device) -> int | None:
    """Bytes that are free on a device; None where its module does not tell."""
    told = getattr(getattr(torch, device.type, None), "mem_get_info", None)
    return None if told is None else int(told(device)[0])
