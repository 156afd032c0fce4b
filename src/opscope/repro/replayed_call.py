# SPDX-License-Identifier: Apache-2.0
"""A call of a run -> plain data and arrays from which it can be made again in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.errors import UsageError
from opscope.repro.build import COLLECTIVES, Material, assemble
from opscope.repro.case import Case
from opscope.run.dtypes import dtype_of
from opscope.substitute.layout import Call as Plain
from opscope.substitute.layout import Flags, Laid, Memory

if TYPE_CHECKING:
    from opscope.run.protocol import Run
    from opscope.run.schema import Call

    Array = np.ndarray[Any, Any]

# Their outputs hold whatever memory held.
ALLOCATORS = frozenset({"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize_", "set_"})


class Again(msgspec.Struct, frozen=True, kw_only=True):
    """A call ready to be made: memories as bytes, recorded outputs by slot as (element type, array); values says what fills the inputs."""

    call: Plain
    memories: list[Any]
    outputs: dict[str, tuple[str, Any]]
    values: str
    device: str


def again(run: Run, call: Call) -> Again:
    """The call with its recorded inputs. UsageError or MissingValueError say why it cannot be made again."""
    if call.level == "module":
        raise UsageError("a module runs code of its own; its operators are replayed one by one")
    if call.error:
        raise UsageError(f"it ended with an error when it was recorded: {call.error.splitlines()[0][:120]}")
    if call.level == "operator" and call.op.partition("::")[0] in COLLECTIVES:
        raise UsageError("it needs a process group")
    if call.op.partition("::")[2].partition(".")[0] in ALLOCATORS:
        raise UsageError("its result is memory that nobody has written yet")
    if call.level == "api" and call.phase != "forward":
        raise UsageError("the gradient of a function was recorded without the function's own arguments")
    material = assemble(run, call, form="torch")
    return from_material(material)


def from_material(material: Material) -> Again:
    """The same from the material of a repro folder."""
    case = material.case
    kinds = {tensor.values for tensor in case.tensors}
    if "uninitialised" in kinds:
        raise UsageError("an input was memory that nobody had written yet")
    names = list(case.buffers)
    memories = filled(material, names)
    tensors = {
        tensor.slot: Laid(
            memory=names.index(tensor.buffer), dtype=tensor.dtype, shape=tensor.shape, stride=tensor.stride, offset=tensor.offset
        )
        for tensor in case.tensors
    }  # fmt: skip
    plain = Plain(op=case.op, args=case.args, tensors=tensors, memories=tuple(Memory(size=m.size) for m in memories), flags=Flags())
    loads = {entry.key: entry for entry in material.expected}
    outputs = {
        out.slot: (dtype_of(out.dtype).name, loads[out.key].load()) for out in case.outputs if out.key is not None and out.key in loads
    }
    values = "synthesised" if "synthesised" in kinds else "recorded"
    return Again(call=plain, memories=memories, outputs=outputs, values=values, device=case.device)


def filled(material: Material, names: list[str]) -> list[Array]:
    """The memories with the elements of the call's tensors in them; recorded ones are written last, over invented ones."""
    case = material.case
    memories = {name: np.zeros(size_of(case, name), np.uint8) for name in names}
    entries = {entry.key: entry for entry in material.inputs}
    loaded: dict[str, Array] = {}
    for tensor in sorted(case.tensors, key=lambda tensor: tensor.values == "recorded"):
        if tensor.key is None or 0 in tensor.kept:
            continue
        if tensor.key not in loaded:
            loaded[tensor.key] = entries[tensor.key].load()
        dtype = dtype_of(tensor.dtype).to_numpy()
        strides = tuple(step * dtype.itemsize for step in tensor.stride)
        place: Array = np.ndarray(tensor.kept, dtype, memories[tensor.buffer].data, tensor.offset * dtype.itemsize, strides)
        place[...] = loaded[tensor.key].astype(dtype, copy=False).reshape(tensor.kept)
    return [memories[name] for name in names]


def size_of(case: Case, name: str) -> int:
    """Bytes of a buffer."""
    buffer = case.buffers[name]
    return buffer.size * (1 if buffer.dtype is None else dtype_of(buffer.dtype).itemsize)
