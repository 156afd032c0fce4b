# SPDX-License-Identifier: Apache-2.0
"""A part of a graph with its memories in memory, that can be cut smaller and written again.

Whether what is left can be called at all is not looked at: a trial tells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from opscope.arrays import Array
from opscope.errors import FormatError
from opscope.minimize.candidate import strides_like
from opscope.minimize.minimized import Size
from opscope.repro.graph import GRAPH, INPUTS, Input, Memory, Node, Window, read_window
from opscope.repro.tensorfile import Entry, read_tensors
from opscope.run.dtypes import dtype_of


class GraphPart(msgspec.Struct, frozen=True):
    """A part and the elements of its memories, each flat."""

    window: Window
    memories: tuple[Array, ...]


def load_graph_part(directory: Path) -> GraphPart:
    """The part of a repro folder; FormatError for files that are not what they should be."""
    window = read_window(directory)
    stored = read_tensors(directory / INPUTS)
    memories = tuple(
        stored.array(f"m{number}", memory.dtype, (memory.size,))
        for number, memory in enumerate(window.memories)
    )
    for row in window.inputs:
        if not _lies_inside(row, memories):
            raise FormatError(directory / GRAPH, f"{row.name!r} lies outside of its memory")
    return GraphPart(window, memories)


def _lies_inside(row: Input, memories: Sequence[Array]) -> bool:
    if len(row.shape) != len(row.stride) or not 0 <= row.memory < len(memories):
        return False
    if min([row.offset, *row.stride, *row.shape], default=0) < 0:
        return False
    last = row.offset + sum((n - 1) * s for n, s in zip(row.shape, row.stride, strict=True))
    return 0 in row.shape or last < memories[row.memory].size


def entries_of(part: GraphPart) -> list[Entry]:
    """The memories as a file of tensors takes them."""
    return [
        _entry(f"m{number}", memory, values)
        for number, (memory, values) in enumerate(
            zip(part.window.memories, part.memories, strict=True)
        )
    ]


def _entry(key: str, memory: Memory, values: Array) -> Entry:
    return Entry(key=key, dtype=dtype_of(memory.dtype), shape=(memory.size,), load=lambda: values)


def size_of_part(part: GraphPart) -> Size:
    """The sizes that minimising wants to bring down."""
    return Size(
        elements=sum(math.prod(row.shape) for row in part.window.inputs),
        telling=sum(int(((each != 0) & (each != 1)).sum()) for each in part.memories),
        bytes=sum(each.nbytes for each in part.memories),
        shapes={row.name: tuple(row.shape) for row in part.window.inputs},
    )


def with_outputs(part: GraphPart, outputs: Sequence[str]) -> GraphPart:
    """The part with other outputs."""
    return _with_window(part, outputs=list(outputs))


def without_node(part: GraphPart, name: str) -> GraphPart | None:
    """The part without a call of which nothing is used; None where something is."""
    window = part.window
    nodes = [node for node in window.nodes if node.name != name]
    if not nodes or name in window.outputs or any(name in set(_read(node)) for node in nodes):
        return None
    return swept(_with_window(part, nodes=nodes))


def with_given(part: GraphPart, name: str, values: Array, dtype: str) -> GraphPart | None:
    """The part with what a call made given to it, in memory of its own; None where no call is
    left that reads it.
    """
    window = part.window
    nodes = [node for node in window.nodes if node.name != name]
    outputs = [each for each in window.outputs if each != name]
    if not outputs or not any(name in set(_read(node)) for node in nodes):
        return None
    row = Input(
        name=name,
        memory=len(part.memories),
        shape=list(values.shape),
        stride=[step // values.itemsize for step in np.ascontiguousarray(values).strides],
        offset=0,
    )
    memories = [*window.memories, Memory(dtype, values.size)]
    made = msgspec.structs.replace(
        window, memories=memories, inputs=[*window.inputs, row], nodes=nodes, outputs=outputs
    )
    return swept(GraphPart(made, (*part.memories, values.reshape(-1))))


def swept(part: GraphPart) -> GraphPart:
    """The part without inputs and memories that no call reads."""
    window = part.window
    read = {name for node in window.nodes for name in _read(node)} | set(window.outputs)
    rows = [row for row in window.inputs if row.name in read]
    kept = sorted({row.memory for row in rows})
    inputs = [msgspec.structs.replace(row, memory=kept.index(row.memory)) for row in rows]
    memories = [window.memories[number] for number in kept]
    made = msgspec.structs.replace(window, memories=memories, inputs=inputs)
    return GraphPart(made, tuple(part.memories[number] for number in kept))


def with_length(part: GraphPart, old: int, new: int, axis: int | None = None) -> GraphPart:
    """The part with every dimension of a length made shorter; with an axis, counted from the last,
    only there. An input that is alone in its memory has no gaps then.
    """
    inputs: list[Input] = []
    sizes, values = list(part.window.memories), list(part.memories)
    for row in part.window.inputs:
        shape = [
            new if length == old and axis in (None, axis_number - len(row.shape)) else length
            for axis_number, length in enumerate(row.shape)
        ]
        alone = sum(each.memory == row.memory for each in part.window.inputs) == 1
        if shape == row.shape or not alone:
            inputs.append(msgspec.structs.replace(row, shape=shape))
            continue
        stride = list(strides_like(shape, row.stride))
        packed = _packed(values[row.memory], row, shape, stride)
        sizes[row.memory] = msgspec.structs.replace(sizes[row.memory], size=packed.size)
        values[row.memory] = packed
        inputs.append(msgspec.structs.replace(row, shape=shape, stride=stride, offset=0))
    window = msgspec.structs.replace(part.window, memories=sizes, inputs=inputs)
    return GraphPart(window, tuple(values))


def with_number(part: GraphPart, old: int, new: int) -> GraphPart | None:
    """The part with another whole number among the arguments of its calls, wherever it stands; None
    where it does not.
    """
    nodes = [
        _node_with(node, lambda value: new if value == old else value) for node in part.window.nodes
    ]
    return None if nodes == part.window.nodes else _with_window(part, nodes=nodes)


def with_values(part: GraphPart, number: int, values: Array) -> GraphPart | None:
    """The part with other elements in one memory; None where they are those it has."""
    if values.tobytes() == part.memories[number].tobytes():
        return None
    memories = list(part.memories)
    memories[number] = values
    return GraphPart(part.window, tuple(memories))


def lengths(part: GraphPart) -> list[tuple[int, int]]:
    """Lengths of dimensions above one, the longest first, with their axes, counted from the
    last.
    """
    lengths_and_axes = {
        (length, axis_number - len(row.shape))
        for row in part.window.inputs
        for axis_number, length in enumerate(row.shape)
        if length > 1
    }
    return sorted(lengths_and_axes, reverse=True)


def _with_window(part: GraphPart, **facts: Any) -> GraphPart:
    return GraphPart(msgspec.structs.replace(part.window, **facts), part.memories)


def _packed(flat: Array, row: Input, shape: Sequence[int], stride: Sequence[int]) -> Array:
    """The first elements of an input, as many as a shape has, laid out with these strides."""
    whole = _view(flat[row.offset :], row.shape, row.stride)
    size = 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
    made = np.zeros(size, flat.dtype)
    _view(made, shape, stride)[...] = whole[tuple(slice(length) for length in shape)]
    return made


def _view(flat: Array, shape: Sequence[int], stride: Sequence[int]) -> Array:
    steps = [step * flat.itemsize for step in stride]
    return np.lib.stride_tricks.as_strided(flat, tuple(shape), tuple(steps))


def _read(node: Node) -> Iterator[str]:
    """Names of the nodes and inputs that a call reads."""
    yield from _named([node.args, *node.kwargs.values()])


def _named(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _named(each)
    elif isinstance(value, dict):
        for kind, content in value.items():
            if kind == "node":
                yield str(content)
            elif kind in {"tuple", "slice"}:
                yield from _named(content)


def _node_with(node: Node, change: Callable[[int], int]) -> Node:
    """A call with other whole numbers among its arguments."""
    return msgspec.structs.replace(
        node,
        args=[_changed(each, change) for each in node.args],
        kwargs={name: _changed(each, change) for name, each in node.kwargs.items()},
    )


def _changed(value: Any, change: Callable[[int], int]) -> Any:
    if isinstance(value, list):
        return [_changed(each, change) for each in value]
    if isinstance(value, dict):
        return {
            kind: _changed(content, change) if kind in {"tuple", "slice"} else content
            for kind, content in value.items()
        }
    return change(value) if isinstance(value, int) and not isinstance(value, bool) else value
