# SPDX-License-Identifier: Apache-2.0
"""Statistics of tensors on an accelerator, fetched once a step: small tensors are copied in stream
order and read on the host by the host's kernels; of large ones plain operators work out the
statistics where they lie.

No call waits for the device, and nothing here is seen, checked or substituted by a mode. Between
the ends of steps the rows of staged tensors wait too; a program without steps is fetched when so
many are staged that their rows would fill memory. What cannot be measured (a type that the device
cannot compute with, a private format, a device that failed) has no statistics; nothing is raised.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from opscope.kernels import Statistics, statistics
from opscope.kernels.device import lean
from opscope.record.torch.memory import view

MOST_STAGED = 65536
SMALL = 1 << 18  # bytes that travel in the time of a few launches
RING = 1 << 25  # bytes of host memory for the copies of a step
ALIGNED = 64


@dataclass(frozen=True, eq=False)
class Copied:
    """A tensor on its way to the host: the host's memory, laid out as the tensor is."""

    ticket: int
    tensor: torch.Tensor


@dataclass(frozen=True, eq=False)
class Launched:
    """A large tensor whose statistics are being worked out: pieces of words on the device, for
    lean.read.
    """

    ticket: int
    pieces: list[torch.Tensor]
    dtype: torch.dtype
    size: int


@dataclass(eq=False)
class Device:
    """What is under way on one device, in which of its streams."""

    ring: torch.Tensor
    used: int = 0
    copies: list[Copied] = field(default_factory=list)
    launches: list[Launched] = field(default_factory=list)
    streams: set[Any] = field(default_factory=set)
    lacking: set[torch.dtype] = field(default_factory=set)  # types that its operators refused


class Staging:
    """Tickets and what has been asked of the devices for each."""

    def __init__(self, failed: Callable[[str, BaseException], None]) -> None:
        """failed is told once for each device that could not be asked any more, and why."""
        self._next = 0
        self._devices: dict[torch.device, Device] = {}
        self._lost: set[torch.device] = set()
        self._ready: list[tuple[int, Statistics | None]] = []
        self._failed = failed
        self._lock = threading.RLock()

    @property
    def full(self) -> bool:
        return (
            len(self._ready)
            + sum(len(each.copies) + len(each.launches) for each in self._devices.values())
            >= MOST_STAGED
        )

    def stage(self, tensor: torch.Tensor) -> int:
        """Ask for a tensor's statistics; returns the ticket under which `fetch` gives them."""
        with self._lock:
            ticket = self._next
            self._next += 1
            if tensor.device in self._lost or not self._asked(ticket, tensor):
                self._ready.append((ticket, None))
            return ticket

    def fetch(self) -> list[tuple[int, Statistics | None]]:
        """All staged statistics, None of what could not be measured; one wait and one transfer for
        each device.
        """
        with self._lock:
            for device, under_way in self._devices.items():
                self._collect(device, under_way)
            ready, self._ready = self._ready, []
            return ready

    def _asked(self, ticket: int, tensor: torch.Tensor) -> bool:
        device = tensor.device
        try:
            with unseen():
                under_way = self._devices.get(device)
                if under_way is None:
                    under_way = self._devices[device] = Device(host_memory(RING))
                under_way.streams.add(current_stream(device))
                return self._ask(ticket, tensor.detach(), under_way)
        except Exception as error:  # noqa: BLE001 - the recording boundary: the device is the program's
            self._lose(device, error)
            return False

    def _ask(self, ticket: int, tensor: torch.Tensor, under_way: Device) -> bool:
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
        if tensor.dtype in under_way.lacking or tensor.dtype not in LEAN:
            return False
        try:
            pieces = lean.launch(torch, tensor)
        except (RuntimeError, TypeError):
            under_way.lacking.add(tensor.dtype)
            return False
        under_way.launches.append(Launched(ticket, pieces, tensor.dtype, tensor.numel()))
        return True

    def _collect(self, device: torch.device, under_way: Device) -> None:
        """Wait until the device has done what it was asked, and read it."""
        copies, under_way.copies = under_way.copies, []
        launches, under_way.launches = under_way.launches, []
        streams, under_way.streams = under_way.streams, set()
        under_way.used = 0
        if not copies and not launches:
            return
        found: dict[int, Statistics | None] = dict.fromkeys(
            [each.ticket for each in copies] + [each.ticket for each in launches]
        )
        try:
            with unseen():
                words = fetched(device, launches, streams)
                found.update((each.ticket, read(each.tensor)) for each in copies)
            for each in launches:
                count = sum(piece.numel() for piece in each.pieces)
                found[each.ticket], words = (
                    lean.read(words[:count], each.dtype, each.size),
                    words[count:],
                )
        except Exception as error:  # noqa: BLE001 - as above
            self._lose(device, error)
        self._ready += found.items()

    def _lose(self, device: torch.device, error: BaseException) -> None:
        if device not in self._lost:
            self._lost.add(device)
            self._failed(str(device), error)


@contextmanager
def unseen() -> Iterator[None]:
    """Run operators of our own: below every dispatch and function mode, outside of autograd and
    autocast.
    """
    with ExitStack() as stack:
        stack.enter_context(torch._C._DisableTorchDispatch())
        stack.enter_context(torch._C.DisableTorchFunction())
        stack.enter_context(torch._C._DisableAutocast())
        stack.enter_context(torch.no_grad())
        yield


class InOrder:
    """Stands for the stream of a device that has none: what it is asked is done before the call
    returns.
    """

    def synchronize(self) -> None:
        return


def current_stream(device: torch.device) -> Any:
    """The stream in which the calling thread's operators on a device run."""
    found = getattr(getattr(torch, device.type, None), "current_stream", None)
    return InOrder() if found is None or device.type == "cpu" else found(device)


def host_memory(size: int) -> torch.Tensor:
    """Bytes that a device can write to while the host goes on, where there is such memory."""
    try:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)
    except RuntimeError:
        return torch.empty(size, dtype=torch.uint8)


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
    host = under_way.ring[start:end].view(tensor.dtype)
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


# Types that every accelerator computes with: an NPU makes float32 of float64 and has no 8-bit
# floats.
LEAN = {
    *(torch.float16, torch.bfloat16, torch.float32, torch.complex64),
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
}


def read(tensor: torch.Tensor) -> Statistics | None:
    """Statistics of a host tensor's elements; None where NumPy has no such type."""
    array = view(tensor)
    return None if array is None else statistics(array, threads=torch.get_num_threads())


def non_finite(statistics: Any) -> bool:
    return bool(statistics.nan or statistics.pos_inf or statistics.neg_inf)
