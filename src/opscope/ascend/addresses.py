# SPDX-License-Identifier: Apache-2.0
"""Checks each tensor's address against the allocations in the log, as addr_checker does: does every
byte of it exist?

The log lists allocations only at level INFO, and other allocators (expandable segments, shared
memory) write none. So a tensor outside every allocation is a finding only where the allocations of
other tensors of the same call are there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

import msgspec

from opscope.ascend.fault import Allocation, Fault
from opscope.ascend.registers import CLASSIC
from opscope.ascend.tensors import KernelTensor, on_host, para_base, words_of
from opscope.run.dtypes import find_dtype

OK, INSIDE, NULL, HOST, UNKNOWN, FREED, OVERRUN, OUTSIDE, UNALIGNED, OVERLAP, UNREADABLE = (
    "ok",
    "in the arguments",
    "null",
    "host",
    "unknown",
    "freed",
    "out of range",
    "not allocated",
    "unaligned",
    "overlapping",
    "unreadable",
)
BAD = frozenset((NULL, FREED, OVERRUN, OUTSIDE, UNALIGNED, UNREADABLE))
_PAIRED = 512  # tensors that are held against each other
_FETCH = 20  # the bit of a bus error while an instruction was fetched
_GUARD = (
    1 << 21
)  # bytes around a tensor within which a faulting address is still told to be beside it


class AddressCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be said of one tensor's address: its status, in words, and how sure it is (proven,
    likely, suspected).
    """

    tensor: str
    address: int | None
    size: int | None
    status: str
    text: str
    confidence: str = "proven"
    allocation: tuple[int, int] | None = None

    @property
    def bad(self) -> bool:
        return self.status in BAD


class Owner(msgspec.Struct, frozen=True):
    """A faulting address, where the log has it, and which tensor or allocation it belongs to."""

    source: str
    address: int
    text: str


def check(fault: Fault, tensors: Sequence[KernelTensor]) -> tuple[AddressCheck, ...]:
    """One answer for each tensor with an address, in their order; overlaps are told with the later
    tensor.
    """
    live = _Map(allocation for allocation in fault.allocations or () if allocation.freed_at is None)
    freed = _Map(
        allocation for allocation in fault.allocations or () if allocation.freed_at is not None
    )
    known = fault.allocations is not None
    answers = [
        _one(fault, tensor, live, freed, known=known)
        for tensor in tensors
        if tensor.address is not None and tensor.io != "tiling"
    ]
    traced = any(check.status == OK for check in answers)
    answers = [
        answer if traced or answer.status not in (OUTSIDE, FREED) else _unsure(answer)
        for answer in answers
    ]
    return tuple(_with_overlaps(answers, tensors))


class _Map:
    """Allocations by address."""

    def __init__(self, allocations: Iterable[Allocation]) -> None:
        self._all = sorted(allocations, key=lambda allocation: allocation.address)
        self._starts = [allocation.address for allocation in self._all]

    def around(self, address: int) -> Allocation | None:
        """The allocation that holds an address; of several, which are of several devices, the one
        that reaches farthest.
        """
        after = bisect_right(self._starts, address)
        holding = (
            allocation
            for allocation in self._all[max(0, after - 64) : after]
            if allocation.address <= address < max(allocation.end, allocation.address + 1)
        )
        return max(holding, key=lambda allocation: allocation.end, default=None)

    def before(self, address: int) -> Allocation | None:
        after = bisect_right(self._starts, address)
        return self._all[after - 1] if after else None


def _one(
    fault: Fault, tensor: KernelTensor, live: _Map, freed: _Map, *, known: bool
) -> AddressCheck:
    address = tensor.address or 0
    size = tensor.size
    plain = AddressCheck(tensor=tensor.label, address=address, size=size, status=UNKNOWN, text="")
    certain = _without_allocations(fault, tensor, plain)
    if certain is not None:
        return certain
    if not known:
        return _said(
            plain, UNKNOWN, "the log lists no allocations (ASCEND_GLOBAL_LOG_LEVEL=1 does)"
        )
    if size is None:
        size = 1
    holder = live.around(address)
    if holder is not None:
        plain = msgspec.structs.replace(plain, allocation=(holder.address, holder.size))
        if address + size <= holder.end:
            return _aligned(
                tensor, _said(plain, OK, f"inside the {holder.size} bytes at {holder.address:#x}")
            )
        beyond = address + size - holder.end
        return _said(
            plain,
            OVERRUN,
            f"ends {beyond} bytes beyond the {holder.size} bytes allocated at {holder.address:#x}",
        )
    gone = freed.around(address)
    if gone is not None:
        plain = msgspec.structs.replace(plain, allocation=(gone.address, gone.size))
        return _said(
            plain,
            FREED,
            f"lies in the {gone.size} bytes at {gone.address:#x}, which were freed at "
            f"{gone.freed_at}",
            "likely",
        )
    near = live.before(address)
    beyond_near = (
        f"; {address - near.end} bytes behind the {near.size} bytes at {near.address:#x}"
        if near is not None
        else ""
    )
    return _said(plain, OUTSIDE, f"in no allocation of the log{beyond_near}", "likely")


def _without_allocations(
    fault: Fault, tensor: KernelTensor, plain: AddressCheck
) -> AddressCheck | None:
    """Answers that need no list of allocations."""
    address = tensor.address or 0
    if tensor.unreadable is not None:
        return _said(
            plain, UNREADABLE, f"the dump could not copy it: {tensor.unreadable[:160]}", "likely"
        )
    if address == 0:
        if not tensor.size or tensor.optional or tensor.io == "workspace":
            return _said(plain, OK, "empty")
        return _said(plain, NULL, f"is null, and {tensor.size} bytes are expected", "likely")
    base, words = para_base(fault), words_of(fault)
    length = max(fault.args_size or 0, 8 * len(words))
    if base is not None and base <= address < base + length:
        return _said(plain, INSIDE, f"word {(address - base) // 8} of the argument block")
    if on_host(address):
        return _said(
            plain,
            HOST,
            "host memory: a value that the host needs; the kernel gets a copy of its own",
        )
    if tensor.size == 0:
        return _said(plain, OK, "empty")
    return None


def _aligned(tensor: KernelTensor, checked: AddressCheck) -> AddressCheck:
    dtype = find_dtype(tensor.dtype) if tensor.dtype else None
    if (
        dtype is not None
        and dtype.itemsize > 1
        and checked.address is not None
        and checked.address % dtype.itemsize
    ):
        return _said(
            checked, UNALIGNED, f"is not a multiple of the {dtype.itemsize} bytes of a {dtype.name}"
        )
    return checked


def _said(
    checked: AddressCheck, status: str, text: str, confidence: str = "proven"
) -> AddressCheck:
    return msgspec.structs.replace(checked, status=status, text=text, confidence=confidence)


def _unsure(checked: AddressCheck) -> AddressCheck:
    if checked.status == FREED:
        return msgspec.structs.replace(checked, confidence="suspected")
    reason = (
        f"{checked.text}; as no tensor of this call is in one, its memory comes from "
        "elsewhere than the log lists"
    )
    return _said(checked, UNKNOWN, reason, "suspected")


def _with_overlaps(
    answers: list[AddressCheck], tensors: Sequence[KernelTensor]
) -> list[AddressCheck]:
    """An output or workspace that partly covers another tensor; the very same place is an in-place
    operator's right.
    """
    by_label = {tensor.label: tensor for tensor in tensors}
    for number, later in enumerate(answers[:_PAIRED]):
        for earlier in answers[:number]:
            if later.status != OK or earlier.status != OK or not _partly(earlier, later):
                continue
            written = [
                argument
                for argument in (earlier, later)
                if by_label[argument.tensor].io in ("output", "workspace")
            ]
            if written:
                text = f"{later.text}; overlaps {earlier.tensor} at {earlier.address:#x}"
                answers[number] = _said(later, OVERLAP, text, "suspected")
    return answers


def _partly(first: AddressCheck, second: AddressCheck) -> bool:
    if (
        not first.size
        or not second.size
        or first.address is None
        or second.address is None
        or first.address == second.address
    ):
        return False
    return (
        first.address < second.address + second.size and second.address < first.address + first.size
    )


def owners(fault: Fault, tensors: Sequence[KernelTensor]) -> tuple[Owner, ...]:
    """Which tensor each faulting address in the logs belongs to: page faults, the debug address,
    scalar registers near a tensor.
    """
    addresses = [("page fault", address) for address in fault.fault_addresses]
    near: list[tuple[str, int]] = []
    for core in fault.cores:
        fetched = core.register("ifu error info")
        if _FETCH in core.bits and core.numbering == CLASSIC and fetched is not None:
            addresses.append(
                (f"instruction address of core {core.core}", (fetched >> 2 & (1 << 46) - 1) << 2)
            )
        if core.extend.get("dbg addr"):
            addresses.append((f"dbg addr of core {core.core}", core.extend["dbg addr"]))
        near += [
            (f"{name} of core {core.core}", value)
            for name, value in core.registers.items()
            if name.startswith("X[") and isinstance(value, int)
        ]
    faulted = [
        Owner(source, address, _owner(address, fault, tensors) or "in no tensor of the call")
        for source, address in addresses
    ]
    beside = [
        Owner(source, address, text)
        for source, address in near
        if (text := _owner(address, fault, tensors)) is not None
    ]
    return (*faulted, *beside)


def _owner(address: int, fault: Fault, tensors: Sequence[KernelTensor]) -> str | None:
    best: tuple[int, str] | None = None
    for tensor in tensors:
        if not tensor.address or tensor.size is None or on_host(tensor.address):
            continue
        end = tensor.address + tensor.size
        if tensor.address <= address < end:
            return f"byte {address - tensor.address} of {tensor.label}"
        distance, text = (
            (address - end + 1, f"{address - end} bytes behind the end of {tensor.label}")
            if address >= end
            else (
                tensor.address - address,
                f"{tensor.address - address} bytes before {tensor.label}",
            )
        )
        if distance <= _GUARD and (best is None or distance < best[0]):
            best = (distance, text)
    if best is not None:
        return best[1]
    held = next(
        (
            allocation
            for allocation in fault.allocations or ()
            if allocation.freed_at is None and allocation.address <= address < allocation.end
        ),
        None,
    )
    return (
        f"in the {held.size} bytes allocated at {held.address:#x}, of no tensor of the call"
        if held
        else None
    )
