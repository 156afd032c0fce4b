# SPDX-License-Identifier: Apache-2.0
"""Statistics of tensors on an accelerator, fetched once a step: small tensors are copied in stream
order and read on the host by the host's kernels; the statistics of large ones are worked out where
they lie (devices.py). Large tensors that a call reads and makes are copied into a ring of the
device's own memory (ring.py).

No call waits for the device, and nothing here is seen, checked or substituted by a mode. Between
the ends of steps the rows of staged tensors wait too; a program without steps is fetched when so
many are staged that their rows would fill memory. What cannot be measured (a type that the device
cannot compute with, a private format, a device that failed) has no statistics; nothing is raised.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from opscope.kernels import Statistics, statistics
from opscope.record.torch.devices import (
    Capability,
    InOrder,
    Launched,
    answers,
    captures,
    current_stream,
    host_memory,
    on,
    overflow_status,
    ran_out,
    reason_of,
    unseen,
)
from opscope.record.torch.memory import lies_within, view
from opscope.record.torch.ring import ALIGNED, Ring, can_be_copied, is_unsound, make_ring
from opscope.run.contain import is_surfaced, surface, tell

Result = TypeVar("Result")
MOST_STAGED = 65536
SMALL = 1 << 18  # bytes that travel in the time of a few launches
RING = 1 << 25  # bytes of host memory for the copies of a step; there are two, taken in turns


@dataclass(frozen=True, eq=False)
class Copied:
    """A tensor on its way to the host: the host's memory, laid out as the tensor is."""

    ticket: int
    tensor: torch.Tensor


@dataclass(eq=False)
class Device:
    """What is under way on one device, in which of its streams."""

    rings: list[torch.Tensor]  # the one being filled first
    capability: Capability
    used: int = 0
    copies: list[Copied] = field(default_factory=list)
    arrived: list[list[Copied]] = field(default_factory=lambda: [[], []])  # as the rings hold them
    launches: list[Launched] = field(default_factory=list)
    streams: set[Any] = field(default_factory=set)
    ring: Ring | None = None

    @property
    def tickets(self) -> list[int]:
        return [each.ticket for each in self.copies] + [each.ticket for each in self.launches]


class Staging:
    """Tickets and what has been asked of the devices for each."""

    def __init__(
        self,
        failed: Callable[[str, BaseException], None],
        unmeasured: Callable[[str, str], None] = lambda *_: None,
        capability: Callable[[torch.device], Capability] = Capability,
        *,
        unkept: Callable[[str, str], None] = lambda *_: None,
        ring: int = 0,
    ) -> None:
        """failed is told once for each device that could not be asked any more, and why; unmeasured
        which tensors of a device have no statistics, and why, unkept which are not in its ring of
        so many bytes.
        """
        self._next = 0
        self._devices: dict[torch.device, Device] = {}
        self._lost: set[torch.device] = set()
        self._silent: set[torch.device] = set()  # whose overflow status cannot be read
        self._full: set[torch.device] = set()  # which have no ring, and get none
        self._ready: list[tuple[int, Statistics | None]] = []
        self._failed, self._unmeasured, self._unkept = failed, unmeasured, unkept
        self._ring = ring
        self._capability = capability
        self._capabilities: dict[torch.device, Capability] = {}
        self._lock = threading.RLock()

    @property
    def full(self) -> bool:
        return (
            len(self._ready)
            + sum(len(each.copies) + len(each.launches) for each in self._devices.values())
            >= MOST_STAGED
        )

    @property
    def offered_from(self) -> int:
        """Bytes from which on tensors are to be offered; 0 where there is no ring."""
        return SMALL + 1 if self._ring else 0

    def stage(self, tensor: torch.Tensor) -> int:
        """Ask for a tensor's statistics; returns the ticket under which `fetch` gives them."""
        with self._lock:
            ticket = self._next
            self._next += 1
            plain = tensor.detach()
            if not self.answer(plain, lambda: self._ask(ticket, plain), self._unmeasured):
                self._ready.append((ticket, None))
            return ticket

    def fetch(self) -> list[tuple[int, Statistics | None]]:
        """All staged statistics, None of what could not be measured; one wait and one transfer for
        each device.
        """
        with self._lock:
            for device, under_way in list(self._devices.items()):
                self._collect(device, under_way)
            ready, self._ready = self._ready, []
            return ready

    def offer(self, given: Sequence[tuple[int, torch.Tensor]], *, made: bool) -> None:
        """Copy tensors that a call is about to read, or has made, by version, into the ring of
        their device.
        """
        with self._lock:
            for device in dict.fromkeys(tensor.device for _, tensor in given):
                if device in self._full or captures(device):
                    continue
                there = {
                    number: tensor
                    for number, tensor in given
                    if tensor.device == device and is_large(tensor) and can_be_copied(tensor)
                }
                if there:
                    put = partial(self._put, device, there, made=made)
                    self._answer(device, put, partial(self._without_ring, device))

    def _put(self, device: torch.device, given: Mapping[int, torch.Tensor], *, made: bool) -> None:
        under_way = self._device(device)
        if under_way.ring is None and device not in self._full:
            under_way.ring = self._made_ring(device)
        if under_way.ring is not None:
            stream, launches = current_stream(device), under_way.launches
            why_not = under_way.ring.put(given, made=made, stream=stream, launches=launches)
            if why_not is not None:
                self._unkept(str(device), why_not)

    def _made_ring(self, device: torch.device) -> Ring | None:
        ring = make_ring(device, self._ring)
        size = 0 if ring is None else ring.size
        if size < self._ring // (2 * ALIGNED) * (2 * ALIGNED):
            self._tell_of_ring(device, size)
        if ring is None:
            self._full.add(device)
        return ring

    def _give_back_ring(self, device: torch.device) -> bool:
        """Let go of a device's ring, for good, since its memory is needed; whether there was
        one.
        """
        under_way = self._devices.get(device)
        if under_way is None or under_way.ring is None:
            return False
        under_way.ring = None
        self._full.add(device)
        self._tell_of_ring(device, 0)
        return True

    def _without_ring(self, device: torch.device, why: str) -> None:
        """A device does not what a ring asks of it: it is not asked again."""
        self._full.add(device)
        if device in self._devices:
            self._devices[device].ring = None
        self._unkept(str(device), why)

    def let_go(self) -> None:
        """Recording is over: the memory of rings is the program's again."""
        with self._lock:
            for under_way in self._devices.values():
                under_way.ring = None

    def _tell_of_ring(self, device: torch.device, size: int) -> None:
        tell(
            f"{device} has too little memory for --device-ring: {size >> 20} MiB hold copies of "
            "what calls read; values of an origin may need a second run"
        )

    def held(self, number: int) -> torch.Tensor | None:
        """A version that lies in the ring of a device, copied to the host, which waits for it."""
        with self._lock:
            for device, under_way in list(self._devices.items()):
                ring, refused = under_way.ring, partial(self._unkept, str(device))
                if ring is not None and number in ring:
                    return self._answer(device, partial(ring.held, number), refused)
            return None

    def go_on(self) -> None:
        """What was unsound has been kept: rings are filled again."""
        with self._lock:
            for under_way in self._devices.values():
                if under_way.ring is not None:
                    under_way.ring.frozen = False

    def copy_of(self, ticket: int) -> torch.Tensor | None:
        """What a staged tensor held, where its copy has arrived and not been overwritten yet."""
        with self._lock:
            copies = (each for of in self._devices.values() for ring in of.arrived for each in ring)
            return next((each.tensor for each in copies if each.ticket == ticket), None)

    def answer(
        self,
        tensor: torch.Tensor,
        action: Callable[[], Result],
        refused: Callable[[str, str], None],
    ) -> Result | None:
        """What an action on a device's tensor gives; None where the device cannot do it, which
        refused is told (of which tensors, and why), or answers no more, which is said once.
        """
        return self._answer(tensor.device, action, lambda why: refused(named(tensor), why))

    def overflow_statuses(self) -> dict[str, bool]:
        """Whether the overflow status of each device that saturates is raised; one wait for each.
        What cannot be read is not asked again.
        """
        with self._lock:
            asked = [
                device
                for device, capability in self._capabilities.items()
                if device not in self._silent and capability.saturates and not captures(device)
            ]
            return {
                str(device): raised
                for device in asked
                if (raised := self._overflow_status(device)) is not None
            }

    def _overflow_status(self, device: torch.device) -> bool | None:
        def refused(why: str) -> None:
            self._silent.add(device)
            self._unmeasured(f"{device} overflow status", why)

        if device in self._devices:  # first what would be lost if that fails
            self._collect(device, self._devices[device])
        return self._answer(device, lambda: overflow_status(device), refused)

    def _answer(
        self, device: torch.device, action: Callable[[], Result], refused: Callable[[str], None]
    ) -> Result | None:
        with self._lock:
            if device in self._lost:
                return None
            try:
                with unseen():
                    return self._tried(device, action)
            except Exception as error:
                if is_surfaced(error):
                    raise
                if not answers(device):
                    self._lose(device, error)
                refused(reason_of(error))
                return None

    def _tried(self, device: torch.device, action: Callable[[], Result]) -> Result:
        """Ask a device for something.

        It tells then of an operator that failed earlier. Where it does what it is asked the second
        time it was not opscope that failed: the program is told, which would have met the error at
        its next operator.
        """
        try:
            return action()
        except Exception as error:
            if ran_out(error):
                if self._give_back_ring(device):
                    return action()
                raise
            self._forget(device)
            try:
                action()
            except Exception:  # noqa: BLE001 - of which the driver tells less than the first time
                raise error from None
            surface(error)

    def _forget(self, device: torch.device) -> None:
        """What was under way on a device when an operator failed there may have been dropped."""
        under_way = self._devices.pop(device, None)
        if under_way is not None:
            self._ready += [(ticket, None) for ticket in under_way.tickets]

    def _device(self, device: torch.device) -> Device:
        state = self._devices.get(device)
        if state is None:
            capability = self._capabilities.get(device) or self._capability(device)
            self._capabilities[device] = capability
            state = self._devices[device] = Device(
                [host_memory(RING), host_memory(RING)], capability
            )
        state.streams.add(current_stream(device))
        return state

    def _ask(self, ticket: int, tensor: torch.Tensor) -> bool:
        if captures(tensor.device):
            self._unmeasured(str(tensor.device), "operators that a graph captures run later")
            return False
        under_way = self._device(tensor.device)
        if tensor.is_conj() or tensor.is_neg():
            tensor = tensor.resolve_conj().resolve_neg()
        if tensor.numel() == 0:
            self._ready.append((ticket, read(torch.empty_like(tensor, device="cpu"))))
            return True
        if (
            span_of(tensor) * tensor.element_size() > SMALL
            and tensor.numel() * tensor.element_size() <= SMALL
        ):
            tensor = tensor.contiguous()
        if span_of(tensor) * tensor.element_size() <= SMALL:
            if under_way.used + SMALL > RING:
                self._collect(tensor.device, under_way)
            under_way.copies.append(Copied(ticket, sent(tensor, under_way)))
            return True
        way = under_way.capability.way(tensor.dtype)
        if way is None:
            self._unmeasured(named(tensor), under_way.capability.unmeasured[tensor.dtype])
            return False
        with on(tensor.device):
            pieces = way.launch(torch, tensor)
        under_way.launches.append(Launched(ticket, pieces, way, tensor.dtype, tensor.numel()))
        return True

    def _collect(self, device: torch.device, under_way: Device) -> None:
        """Wait until the device has done what it was asked, and read it."""
        copies, launches, streams = under_way.copies, under_way.launches, under_way.streams
        if not copies and not launches:
            return
        tickets, measured = under_way.tickets, dict[int, Statistics | None]()
        under_way.copies, under_way.launches, under_way.streams = [], [], set()
        under_way.used = 0
        under_way.rings.reverse()
        try:
            with unseen():
                words = self._tried(device, lambda: fetched(device, launches, streams))
            measured.update((each.ticket, read(each.tensor)) for each in copies)
            under_way.arrived = [under_way.arrived[1], copies]
            for each in launches:
                count = sum(piece.numel() for piece in each.pieces)
                measured[each.ticket], words = (
                    each.way.read(words[:count], each.dtype, each.size),
                    words[count:],
                )
            if under_way.ring is not None:
                small = any(is_unsound(measured[each.ticket]) for each in copies)
                under_way.ring.settle([measured[each.ticket] for each in launches], small=small)
        except Exception as error:
            if is_surfaced(error):
                raise
            self._lose(device, error)
        finally:
            self._ready += [(ticket, measured.get(ticket)) for ticket in tickets]

    def _lose(self, device: torch.device, error: BaseException) -> None:
        if device not in self._lost:
            self._lost.add(device)
            self._failed(str(device), error)


def named(tensor: torch.Tensor) -> str:
    return f"{tensor.device} {str(tensor.dtype).removeprefix('torch.')}"


def is_large(tensor: torch.Tensor) -> bool:
    """Whether the host gets no copy of a tensor, which has its memory still."""
    return tensor.nbytes > SMALL and lies_within(tensor)


def span_of(tensor: torch.Tensor) -> int:
    """Elements from a tensor's first to its last in memory."""
    return 1 + sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )


def sent(tensor: torch.Tensor, under_way: Device) -> torch.Tensor:
    """A tensor's memory on its way into the ring, laid out as it is on the device."""
    span = span_of(tensor)
    start, end = under_way.used, under_way.used + span * tensor.element_size()
    under_way.used = -(-end // ALIGNED) * ALIGNED
    under_way.arrived[0] = []
    host = under_way.rings[0][start:end].view(tensor.dtype)
    host.copy_(tensor.as_strided((span,), (1,), tensor.storage_offset()), non_blocking=True)
    return host.as_strided(tensor.shape, tensor.stride(), host.storage_offset())


def fetched(
    device: torch.device, launches: list[Launched], streams: Iterable[Any]
) -> NDArray[np.int16]:
    """Wait once until all streams have done what they were asked; the words of the launches, one
    after the other.
    """
    words = torch.empty(0, dtype=torch.int16)
    here = current_stream(device)
    for stream in streams:
        if stream != here and not isinstance(here, InOrder):
            here.wait_stream(stream)
    if launches:
        joined = torch.cat([piece for each in launches for piece in each.pieces])
        words = host_memory(2 * joined.numel()).view(torch.int16)
        words.copy_(joined, non_blocking=True)
    here.synchronize()
    return words.numpy()


def read(tensor: torch.Tensor) -> Statistics | None:
    """Statistics of a host tensor's elements; None where NumPy has no such type."""
    array = view(tensor)
    return None if array is None else statistics(array, threads=torch.get_num_threads())
