# SPDX-License-Identifier: Apache-2.0
"""A call of a run -> plain data and arrays from which it can be made again in this process."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.arrays import Array
from opscope.errors import UsageError
from opscope.judge.operators import is_overwritten
from opscope.narrow import as_type
from opscope.operators.catalogue import family, traits_of
from opscope.repro.build import COLLECTIVES, Material, assemble
from opscope.repro.case import Case
from opscope.repro.synthesis import synthesise
from opscope.run.dtypes import dtype_of
from opscope.run.query import call_at as find_call
from opscope.run.query import tensors_of
from opscope.run.schema import dense_strides
from opscope.substitute.layout import ARGUMENTS, GRADIENT, GRADS, WANTED, Flags, Laid, Memory
from opscope.substitute.layout import Call as Plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opscope.run.protocol import Run
    from opscope.run.schema import Call, Tensor


# What torch.set_default_dtype takes, its own first.
DEFAULTS = ("float32", "float64", "float16", "bfloat16")


class Again(msgspec.Struct, frozen=True, kw_only=True):
    """A call ready to be made: memories as bytes, recorded outputs by slot as (element type,
    array); values says what fills the inputs.
    """

    call: Plain
    memories: list[Any]
    outputs: dict[str, tuple[str, Any]]
    values: str
    device: str
    other: Again | None = None


def again(run: Run, call: Call) -> Again:
    """The call with its recorded inputs. UsageError or MissingValueError say why it cannot be made
    again.
    """
    if call.level == "module":
        raise UsageError("a module runs code of its own; its operators are replayed one by one")
    if call.error:
        raise UsageError(
            f"it ended with an error when it was recorded: {call.error.splitlines()[0][:120]}"
        )
    if call.level == "operator" and call.op.partition("::")[0] in COLLECTIVES:
        raise UsageError("it needs a process group")
    if traits_of(call.op).allocates or family(call.op) == "set":
        raise UsageError("its result is memory that nobody has written yet")
    if call.level == "api" and call.phase == "backward":
        return gradient(run, call)
    return from_material(assemble(run, call, form="torch"))


def gradient(run: Run, call: Call) -> Again:
    """The gradient of a function: the function's own call, and the gradients that came into it.

    Dumps differ in which gradients they mean (substitute/callables.py): other is the second way to
    read them, in which they are told apart by shape.
    """
    forward = forward_of(run, call)
    whole = from_material(assemble(run, forward, form="torch"))
    rows = [row for row in tensors_of(run, call) if row.io == "input"]
    incoming = [values_of(run, row) for row in rows]
    tensors, memories = dict(whole.call.tensors), list(whole.memories)
    for number, (row, (array, _)) in enumerate(zip(rows, incoming, strict=True)):
        dense = np.ascontiguousarray(array)
        laid = Laid(
            memory=len(memories),
            dtype=dtype_of(row.dtype).name,
            shape=array.shape,
            stride=dense_strides(array.shape),
        )
        tensors[f"grads.{number}"] = laid
        memories.append(dense.reshape(-1).view(np.uint8))
    wanted = differentiable(run, forward, tensors)
    kwargs = {
        **whole.call.args["kwargs"],
        GRADS: [{"tensor": f"grads.{i}"} for i in range(len(rows))],
        WANTED: list(wanted),
    }
    plain = msgspec.structs.replace(
        whole.call,
        op=GRADIENT + whole.call.op,
        tensors=tensors,
        memories=tuple(Memory(size=m.size) for m in memories),
        args={"args": whole.call.args["args"], "kwargs": {**kwargs, ARGUMENTS: False}},
    )
    outgoing = {
        row.slot: row
        for row in tensors_of(run, call)
        if row.io == "output" and row.value is not None and row.shape is not None
    }
    outputs = {slot: (dtype_of(row.dtype).name, run.value(row)) for slot, row in outgoing.items()}
    values = (
        "synthesised"
        if "synthesised" in (whole.values, *(kind for _, kind in incoming))
        else "recorded"
    )
    again_now = Again(
        call=plain, memories=memories, outputs=outputs, values=values, device=whole.device
    )
    other = msgspec.structs.replace(
        plain, args={**plain.args, "kwargs": {**kwargs, ARGUMENTS: True}}
    )
    apart = told_apart(list(outputs.values()), [tensors[slot].shape for slot in wanted])
    return msgspec.structs.replace(
        again_now, other=msgspec.structs.replace(again_now, call=other, outputs=apart)
    )


def forward_of(run: Run, call: Call) -> Call:
    """The call whose gradient this is; UsageError when it was not recorded."""
    if call.forward_index is None:
        raise UsageError("the gradient of a function was recorded without the function's own call")
    return call_at(run, call.process, call.forward_index)


def call_at(run: Run, process: int, index: int) -> Call:
    """A call by its number; UsageError when the run has none."""
    call = find_call(run, process, index)
    if call is None:
        raise UsageError(f"call #{index} is not in the run")
    return call


def values_of(run: Run, row: Tensor) -> tuple[Array, str]:
    """Values of a tensor row, recorded or invented from its statistics."""
    if row.shape is None:
        raise UsageError(f"input {row.slot} has no recorded shape")
    if row.value is not None:
        return run.value(row), "recorded"
    made, exact = synthesise(row, math.prod(row.shape))
    return made.reshape(row.shape), "recorded" if exact else "synthesised"


def differentiable(run: Run, forward: Call, tensors: Mapping[str, Laid]) -> tuple[str, ...]:
    """Slots of a function's inputs that have a gradient, in the order of its arguments."""
    known = {row.slot: row for row in tensors_of(run, forward) if row.io == "input"}
    floats = [
        slot
        for slot, laid in tensors.items()
        if not slot.startswith("grads.") and dtype_of(laid.dtype).kind in ("float", "complex")
    ]
    return tuple(
        slot for slot in floats if slot not in known or known[slot].requires_grad is not False
    )


def told_apart(
    gradients: list[tuple[str, Array]], shapes: list[tuple[int, ...]]
) -> dict[str, tuple[str, Any]]:
    """Recorded gradients by the place of the input they belong to."""
    outputs: dict[str, tuple[str, Any]] = {}
    for dtype, array in gradients:
        straight = [
            i for i, shape in enumerate(shapes) if shape == array.shape and str(i) not in outputs
        ]
        turned = [
            i
            for i, shape in enumerate(shapes)
            if shape == array.shape[::-1] and array.ndim == 2 and str(i) not in outputs
        ]
        if straight:
            outputs[str(straight[0])] = (dtype, array)
        elif turned:
            outputs[str(turned[0])] = (dtype, np.ascontiguousarray(array.T))
    return outputs


def from_material(material: Material) -> Again:
    """The same from the material of a repro folder."""
    case = material.case
    kinds = {tensor.values for tensor in case.tensors}
    blank = {tensor.slot for tensor in case.tensors if tensor.values == "uninitialised"}
    if blank and not (blank == {"0"} and is_overwritten(case.op, "0")):
        raise UsageError("an input was memory that nobody had written yet")
    names = list(case.buffers)
    memories = filled(material, names)
    tensors = {
        tensor.slot: Laid(
            memory=names.index(tensor.buffer),
            dtype=tensor.dtype,
            shape=tensor.shape,
            stride=tensor.stride,
            offset=tensor.offset,
        )
        for tensor in case.tensors
    }
    plain = Plain(
        op=case.op,
        args=case.args,
        tensors=tensors,
        memories=tuple(Memory(size=m.size) for m in memories),
        flags=Flags(default_dtype=default_type(case)),
        random=generator_state(material),
        device=case.device,
    )
    loads = {entry.key: entry for entry in material.expected}
    outputs = {
        out.slot: (dtype_of(out.dtype).name, loads[out.key].load())
        for out in case.outputs
        if out.key is not None and out.key in loads
    }
    values = "synthesised" if "synthesised" in kinds else "recorded"
    return Again(call=plain, memories=memories, outputs=outputs, values=values, device=case.device)


def default_type(case: Case) -> str:
    """The program's default element type where the call has it: its result is floating, no input
    is, no argument names a type.
    """
    inputs = [dtype_of(tensor.dtype).name for tensor in case.tensors]
    if names_type([*case.args["args"], *case.args["kwargs"].values()]) or any(
        name in DEFAULTS for name in inputs
    ):
        return DEFAULTS[0]
    return next(
        (name for out in case.outputs if (name := dtype_of(out.dtype).name) in DEFAULTS),
        DEFAULTS[0],
    )


def names_type(node: object) -> bool:
    """Whether an element type is among these arguments."""
    if isinstance(node, list):
        return any(map(names_type, node))
    return isinstance(node, dict) and "dtype" in node


def generator_state(material: Material) -> bytes | None:
    """State of the CPU's own generator before the call; None where the run does not have it."""
    key = material.case.random.states.get("cpu")
    entry = next((entry for entry in material.inputs if entry.key == key), None)
    return None if entry is None else entry.load().tobytes()


def filled(material: Material, names: list[str]) -> list[Array]:
    """The memories with the elements of the call's tensors in them; recorded ones are written last,
    over invented ones.
    """
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
        held: Array = np.ndarray(
            tensor.kept,
            dtype,
            memories[tensor.buffer].data,
            tensor.offset * dtype.itemsize,
            strides,
        )
        held[...] = as_type(loaded[tensor.key], dtype).reshape(tensor.kept)
    return [memories[name] for name in names]


def size_of(case: Case, name: str) -> int:
    """Bytes of a buffer."""
    buffer = case.buffers[name]
    return buffer.size * (1 if buffer.dtype is None else dtype_of(buffer.dtype).itemsize)
