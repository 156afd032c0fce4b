# SPDX-License-Identifier: Apache-2.0
"""Makes one call again on memory of its own: builds its tensors, calls a function with them,
collects what it gave.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from opscope.kernels.arguments import Tree
from opscope.kernels.calls import writes_to
from opscope.substitute.arguments import Conditions, dtype_name, dtype_named, values_of
from opscope.substitute.layout import GRADIENT, WRITTEN, Call, Laid, Memory
from opscope.substitute.references import reference_of
from opscope.substitute.schema import find_operator, written_arguments

LINE = 64  # bytes: the alignment that kernels ask for


class Leaves:
    """Tells tensors from other leaves of an argument tree."""

    @staticmethod
    def is_tensor(value: object) -> bool:
        return isinstance(value, torch.Tensor)

    @staticmethod
    def encode(value: object) -> str:
        raise NotImplementedError(f"{type(value)} is not written here")


LEAVES = Leaves()


@dataclass(eq=False)
class Bound:
    """A call bound to memory: the operator, plain data about the call, and its memories as tensors
    of bytes.

    promised are the arguments that it writes to by its schema, writes those and others that are
    known to be written.
    """

    call: Call
    memories: Sequence[torch.Tensor]
    func: Any = None
    writes: frozenset[str] = field(default_factory=frozenset)
    promised: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        if self.func is None:
            self.func = reference_for(self.call) or find_operator(self.call.op)
        schema = getattr(self.func, "_schema", None)
        self.promised = (
            frozenset({"0"} if writes_first(self.call.op) else ())
            if schema is None
            else written_arguments(schema)
        )
        self.writes |= self.promised

    @property
    def name(self) -> str:
        """The operator's or function's name without namespace and overload."""
        op = self.call.op.removeprefix(GRADIENT)
        return op.rpartition("::")[2].partition(".")[0] if "::" in op else op.rpartition(".")[2]

    def tensors(self, where: Conditions) -> dict[str, torch.Tensor]:
        """Tensors by slot: those that shared memory share it again, in the element types that
        `where` says.

        What the call writes to is fresh, what it only reads may be the memory itself.
        """
        made: dict[tuple[int, torch.dtype | None], torch.Tensor] = {}
        return {slot: self._tensor(laid, where, made) for slot, laid in self.call.tensors.items()}

    def _may_lend(self, number: int, memory: torch.Tensor) -> bool:
        """Whether the call may use a memory itself: it does not write there, and the bytes lie as
        the original's did.
        """
        if (
            memory.device.type != "cpu"
            or memory.data_ptr() % LINE != self.call.memories[number].skew
        ):
            return False
        return all(
            laid.memory != number
            for slot, laid in self.call.tensors.items()
            if writes_to(self.writes, slot)
        )

    def _tensor(
        self,
        laid: Laid,
        where: Conditions,
        made: dict[tuple[int, torch.dtype | None], torch.Tensor],
    ) -> torch.Tensor:
        dtype = dtype_named(laid.dtype)
        wide, device = where.dtype(dtype), where.device(laid.device)
        key = (laid.memory, None if wide is dtype else dtype)
        if key not in made:
            memory = self.memories[laid.memory]
            if wide is dtype and device == "cpu" and self._may_lend(laid.memory, memory):
                made[key] = memory
            elif wide is dtype:
                made[key] = copy_bytes(memory, self.call.memories[laid.memory].skew, device)
            else:
                whole = memory[: memory.numel() // dtype.itemsize * dtype.itemsize]
                made[key] = typed(whole, dtype).to(device=device, dtype=wide, copy=True)
        return strided(made[key], laid, wide)


def reference_for(call: Call) -> Callable[..., Any] | None:
    """The reference of a call that was made on an accelerator, whose operator may have no kernel
    here; None where there is none.
    """
    return reference_of(call.op) if on_accelerator(call) else None


def on_accelerator(call: Call) -> bool:
    """Whether the program's call was made on another device than the CPU."""
    places = (call.device, *(laid.device for laid in call.tensors.values()))
    return any(device.partition(":")[0] not in ("", "cpu") for device in places)


def writes_first(op: str) -> bool:
    """Whether a function writes to its first argument, by its name: Tensor.add_,
    Tensor.__iadd__.
    """
    name = op.rpartition(".")[2]
    if op.startswith(GRADIENT):
        return False
    return (name.endswith("_") and not name.endswith("__")) or (
        name.startswith("__i") and name not in ("__invert__", "__index__", "__int__")
    )


def copy_bytes(memory: torch.Tensor, skew: int, device: str) -> torch.Tensor:
    """The same bytes at an address with the same alignment."""
    if device != "cpu":
        return memory.to(device, copy=True)
    room = torch.empty(memory.numel() + LINE, dtype=torch.uint8)
    start = (skew - room.data_ptr()) % LINE
    kept = room[start : start + memory.numel()]
    kept.copy_(memory)
    return kept


def typed(memory: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Bytes as elements, wherever they lie."""
    if memory.storage_offset() % dtype.itemsize or memory.data_ptr() % dtype.itemsize:
        memory = memory.clone()
    return memory.view(dtype)


def strided(memory: torch.Tensor, laid: Laid, dtype: torch.dtype) -> torch.Tensor:
    """The view of a memory (bytes, or elements of dtype) that a layout describes; layouts come
    checked.
    """
    if memory.dtype is not dtype:
        start = memory.storage_offset()
        if start % dtype.itemsize:
            memory = memory.clone()
            start = 0
        offset = start // dtype.itemsize + laid.offset
        return torch.empty(0, dtype=dtype, device=memory.device).set_(
            memory.untyped_storage(), offset, laid.shape, laid.stride
        )
    return memory.as_strided(laid.shape, laid.stride, memory.storage_offset() + laid.offset)


@dataclass(eq=False)
class Performed:
    """What making a call gave: outputs by slot (results, and arguments that were written), and the
    arguments it was made with.
    """

    outputs: dict[str, torch.Tensor]
    tensors: dict[str, torch.Tensor]


def perform(
    bound: Bound, where: Conditions, function: Callable[..., Any] | None = None
) -> Performed:
    """Make the call, with another function in place of the operator where one is given; errors of
    the function pass through.
    """
    tensors = bound.tensors(where)
    args, kwargs = values_of(bound.call.args, tensors, where)
    with torch.no_grad(), default_type(dtype_named(bound.call.flags.default_dtype)):
        result = (function or bound.func)(*args, **kwargs)
    return Performed(outputs_of(result, tensors, bound.writes), tensors)


@contextlib.contextmanager
def default_type(dtype: torch.dtype) -> Iterator[None]:
    """Has torch create numbers in a type, which quotients of integers take as well, and puts its
    own back.
    """
    before = torch.get_default_dtype()
    if before is dtype:
        yield
        return
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def outputs_of(
    result: Any, tensors: Mapping[str, torch.Tensor], writes: frozenset[str]
) -> dict[str, torch.Tensor]:
    """Tensors of a result by slot, and the arguments that the call wrote to."""
    outputs = dict(Tree(LEAVES).find_result(result))
    outputs.update(
        {WRITTEN + slot: tensor for slot, tensor in tensors.items() if writes_to(writes, slot)}
    )
    return outputs


class Gathered:
    """Tensors laid over the memories they lie in, one memory for each storage, numbered from
    `first`.

    pieces are the memories as tensors of bytes, not copied; starts says where in its storage (by
    key) each memory begins.
    """

    def __init__(self, tensors: Iterable[tuple[str, torch.Tensor]], *, first: int = 0) -> None:
        self.laid: dict[str, Laid] = {}
        self.memories: list[Memory] = []
        self.pieces: list[torch.Tensor] = []
        self.starts: dict[int, tuple[int, int]] = {}
        by_storage: dict[int, list[tuple[str, torch.Tensor]]] = {}
        for slot, tensor in tensors:
            by_storage.setdefault(storage_key(tensor), []).append((slot, tensor))
        for key, members in by_storage.items():
            base, size = covered([tensor for _, tensor in members])
            number = first + len(self.memories)
            self.starts[key] = (number, base)
            self.laid.update({slot: lay(tensor, number, base) for slot, tensor in members})
            piece = piece_of(members[0][1], base, size)
            self.memories.append(Memory(size=size, skew=address_of(piece) % LINE if size else 0))
            self.pieces.append(piece)


def storage_key(tensor: torch.Tensor) -> int:
    """The same for tensors that share a storage; tensors without elements share none."""
    key: int = tensor.untyped_storage()._cdata
    return key


def covered(tensors: Sequence[torch.Tensor]) -> tuple[int, int]:
    """First byte and number of bytes that these tensors of one storage cover; the first is aligned
    for every element type.
    """
    spans = []
    for tensor in tensors:
        size = tensor.element_size()
        last = (
            1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
            if tensor.numel()
            else 0
        )
        start = int(tensor.storage_offset())
        spans.append((start * size, (start + last) * size))
    base = min(start for start, _ in spans) // 16 * 16
    return base, max(end for _, end in spans) - base


def lay(tensor: torch.Tensor, memory: int, base: int) -> Laid:
    """The layout of a tensor over a memory that begins at byte `base` of its storage."""
    return Laid(
        memory=memory,
        dtype=dtype_name(tensor),
        shape=tuple(tensor.shape),
        stride=tuple(tensor.stride()),
        offset=int(tensor.storage_offset()) - base // tensor.element_size(),
        device=tensor.device.type
        if tensor.device.index is None
        else f"{tensor.device.type}:{tensor.device.index}",
    )


def piece_of(tensor: torch.Tensor, base: int, size: int) -> torch.Tensor:
    """Bytes of a tensor's storage, as a view."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(
        tensor.untyped_storage(), base, (size,), (1,)
    )


def address_of(piece: torch.Tensor) -> int:
    return piece.data_ptr() if piece.device.type == "cpu" else 0
