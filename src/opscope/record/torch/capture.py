# SPDX-License-Identifier: Apache-2.0
"""A live call as plain data and memories, so that it can be made again elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import torch

from opscope.judge.operators import is_workspace
from opscope.kernels.arguments import Tree
from opscope.kernels.calls import declined, head_of, writes_to
from opscope.operators.catalogue import traits_of
from opscope.record.torch.aside import PLAIN
from opscope.record.torch.binding import encode
from opscope.record.torch.memory import overlaps_itself
from opscope.run.dtypes import find_dtype
from opscope.substitute.arguments import Conditions, dtype_name, unknown_leaf
from opscope.substitute.examine import same_bits
from opscope.substitute.layout import WRITTEN, Call, Flags, Given, Laid
from opscope.substitute.perform import (
    Bound,
    Gathered,
    lay,
    outputs_of,
    perform,
    piece_of,
    storage_key,
)


class Leaves:
    """Tells tensors from other leaves, and writes those as JSON."""

    @staticmethod
    def is_tensor(value: object) -> bool:
        return isinstance(value, torch.Tensor)

    @staticmethod
    def encode(value: object) -> str:
        return encode(value)


LEAVES = Leaves()
LEAST = sys.float_info.min  # of normal numbers


class NotCapturedError(Exception):
    """The call cannot be made again; the text says why."""


@dataclass(eq=False)
class Captured:
    """A call, its tensors by slot, and the memories before it: the program's own where the call
    does not write to them. asks is the position of the argument that says which outputs are wanted.
    """

    call: Call
    tensors: dict[str, torch.Tensor]
    pieces: list[torch.Tensor]
    starts: dict[int, tuple[int, int]]
    writes: frozenset[str]
    asks: int | None = None
    _held: dict[int, torch.Tensor] = field(default_factory=dict)

    def hold(self, limit: int) -> None:
        """Copy what the call may only read, unless that takes more bytes, so that unmet_promises
        can tell whether it did.
        """
        if sum(memory.size for memory in self.call.memories) <= limit:
            written = {
                laid.memory
                for slot, laid in self.call.tensors.items()
                if writes_to(self.writes, slot)
            }
            self._held = {
                memory_number: piece.clone()
                for memory_number, piece in enumerate(self.pieces)
                if memory_number not in written
            }

    def unmet_promises(self, func: Any) -> frozenset[str]:
        """Arguments that the call changed though its schema says that it reads them: they count as
        written from now on.

        The call is made again on the copies, so that nobody is accused of what another thread did
        meanwhile.
        """
        apart = {
            memory_number
            for memory_number, before in self._held.items()
            if not same_bits(before, self.pieces[memory_number])
        }
        if not apart:
            return frozenset()
        pieces = [
            self._held.get(memory_number, piece) for memory_number, piece in enumerate(self.pieces)
        ]
        slots = [slot for slot, laid in self.call.tensors.items() if laid.memory in apart]
        bound = Bound(self.call, pieces, func, writes=frozenset(map(head_of, slots)))
        before, after = bound.tensors(Conditions()), perform(bound, Conditions()).outputs
        broken = frozenset(
            head_of(slot) for slot in slots if not same_bits(before[slot], after[WRITTEN + slot])
        )
        memories = {
            laid.memory for slot, laid in self.call.tensors.items() if writes_to(broken, slot)
        }
        self.pieces = [
            self._held.get(memory_number, piece) if memory_number in memories else piece
            for memory_number, piece in enumerate(self.pieces)
        ]
        self.writes |= broken
        return broken

    def given(self, result: Any) -> tuple[Given, list[torch.Tensor]]:
        """What the call gave, and the memories that takes beyond its own."""
        first = len(self.call.memories)
        unasked = {
            *declined(self.call.args["args"], self.asks),
            *traits_of(self.call.op).scratch.split(","),
        }
        outputs: dict[str, Laid] = {}
        fresh: list[tuple[str, torch.Tensor]] = []
        changed = {
            self.call.tensors[slot].memory: tensor
            for slot, tensor in self.tensors.items()
            if writes_to(self.writes, slot)
        }
        for slot, tensor in outputs_of(result, self.tensors, self.writes).items():
            scratch = head_of(slot) in unasked or is_workspace(self.call.op, dtype_name(tensor))
            if scratch or unfit(tensor) is not None:
                continue
            known = self.starts.get(storage_key(tensor))
            if known is None:
                fresh.append((slot, tensor))
                continue
            laid = lay(tensor, known[0], known[1])
            if within(laid, self.call.memories[known[0]].size):
                outputs[slot] = laid
        made = Gathered(fresh, first=first)
        outputs.update(made.laid)
        replaced = {
            memory: first + len(made.memories) + number for number, memory in enumerate(changed)
        }
        after = [self._after(memory, tensor) for memory, tensor in changed.items()]
        memories = (*made.memories, *(self.call.memories[memory] for memory in changed))
        return Given(outputs=outputs, memories=memories, replaced=replaced), [*made.pieces, *after]

    def _after(self, memory: int, tensor: torch.Tensor) -> torch.Tensor:
        base = self.starts[storage_key(tensor)][1]
        return piece_of(tensor, base, self.call.memories[memory].size)


def within(laid: Laid, size: int) -> bool:
    """Whether a layout stays inside a memory of this size."""
    if laid.offset < 0:
        return False
    dtype = find_dtype(laid.dtype)
    last = (
        1 + sum((n - 1) * s for n, s in zip(laid.shape, laid.stride, strict=True))
        if 0 not in laid.shape
        else 0
    )
    return dtype is not None and (laid.offset + last) * dtype.itemsize <= size


def capture(
    op: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    writes: frozenset[str],
    random: bool,
    limit: int,
) -> Captured:
    """The call with its memories; those it writes to are copied. NotCapturedError for what cannot
    be handed over.
    """
    tree = Tree(LEAVES)
    text = tree.encode(args, dict(kwargs))
    for _, tensor in tree.tensors:
        reason = unfit(tensor)
        if reason is not None:
            raise NotCapturedError(reason)
    decoded = msgspec.json.decode(text)
    unknown = unknown_leaf(decoded)
    if unknown is not None:
        raise NotCapturedError(f"an argument is a {unknown}")
    gathered = Gathered(tree.tensors)
    if sum(memory.size for memory in gathered.memories) > limit:
        raise NotCapturedError(f"its tensors take more than {limit >> 20} MiB")
    changed = {slot: tensor for slot, tensor in tree.tensors if writes_to(writes, slot)}
    if any(map(overlaps_itself, changed.values())):
        raise NotCapturedError("it writes to elements that are one in memory, which is undefined")
    written = {gathered.laid[slot].memory for slot in changed}
    pieces = [
        piece.clone() if memory_number in written else piece
        for memory_number, piece in enumerate(gathered.pieces)
    ]
    call = Call(
        op=op,
        args=decoded,
        tensors=gathered.laid,
        memories=tuple(gathered.memories),
        flags=flags(),
        random=generator_state(args, kwargs, tree.tensors) if random else None,
    )
    return Captured(call, dict(tree.tensors), pieces, gathered.starts, writes)


def unfit(tensor: torch.Tensor) -> str | None:
    """Why a tensor cannot be handed over, None when it can."""
    if type(tensor) not in PLAIN:
        return f"a {type(tensor).__name__} stands for other tensors"
    if tensor.layout is not torch.strided or tensor.is_nested:
        return (
            f"a tensor of layout {'nested' if tensor.is_nested else tensor.layout} has no plain "
            "memory"
        )
    if tensor.is_quantized or tensor.is_meta or not torch._C._has_storage(tensor):
        return "a quantized or meta tensor has no values that can be compared"
    if tensor._is_zerotensor():
        return "a tensor of zeros has no memory"
    if tensor.is_conj() or tensor.is_neg():
        return "a tensor is lazily conjugated or negated"
    if min(tensor.stride(), default=0) < 0:
        return "a tensor has a negative stride"
    return None


def generator_state(
    args: Sequence[Any], kwargs: Mapping[str, Any], tensors: Sequence[tuple[str, torch.Tensor]]
) -> bytes:
    """State of the generator the call draws from; NotCapturedError for one of an accelerator."""
    if (
        any(tensor.device.type != "cpu" for _, tensor in tensors)
        or torch.device(kwargs.get("device") or "cpu").type != "cpu"
    ):
        raise NotCapturedError("it draws from an accelerator's generator")
    return generator_of(args, kwargs).get_state().numpy().tobytes()


def generator_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Generator:
    """The generator of the CPU that a call draws from."""
    return next(
        (each for each in (*args, *kwargs.values()) if isinstance(each, torch.Generator)),
        torch.default_generator,
    )


def flags() -> Flags:
    """Settings of the program that change what kernels compute."""
    return Flags(
        threads=torch.get_num_threads(),
        matmul_precision=torch.get_float32_matmul_precision(),
        mkldnn=bool(torch._C._get_mkldnn_enabled()),
        flush_denormal=LEAST / 2 == 0.0,  # torch sets it and does not tell
        default_dtype=str(torch.get_default_dtype()).removeprefix("torch."),
    )
