# SPDX-License-Identifier: Apache-2.0
"""Read ms_output_trace_code_graph_{g}.pb: the graph as protocol buffers, for dumps whose .ir is
missing.

Messages and field numbers are those of MindSpore's anf_ir.proto: ModelProto.graph 4; GraphProto
node 1, name 2, parameters 3, const_vals 5; NodeProto input 1, name 2, op_type 3, scope 4, attribute
5, output_type 6, full_name 8, source lines 9 (innermost frame first here). It knows host types of
outputs only, so whether a file holds half of a wider device buffer cannot be told.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opscope.errors import FormatError
from opscope.formats.bounded import read_bounded
from opscope.formats.cann.wire import varint
from opscope.formats.mindspore.graph import Graph, GraphParameter, Node, Operand, TensorType
from opscope.formats.mindspore.ir import frames_of

_SIZE_LIMIT = 1 << 30
_DEPTH_LIMIT = 32
_DTYPES = {
    1: "bool",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "uint8",
    7: "uint16",
    8: "uint32",
    9: "uint64",
    10: "float16",
    11: "float32",
    12: "float64",
    13: "string",
    36: "int64",
    37: "uint64",
    38: "float32",
    43: "complex64",
    44: "complex128",
}
_TENSOR, _TUPLE, _LIST, _TYPE = 14, 31, 32, 39

Field = tuple[int, int, Any]  # number, wire type, value


class Wire:
    """Fields of one message; FormatError with the file and offset when a length or tag makes no
    sense.
    """

    def __init__(self, data: bytes, path: str, base: int = 0) -> None:
        self.data, self.path, self.base = data, path, base

    def fail(self, at: int, reason: str) -> FormatError:
        return FormatError(self.path, reason, offset=self.base + at)

    def varint(self, at: int) -> tuple[int, int]:
        try:
            return varint(self.data, at)
        except IndexError:
            raise self.fail(at, "a number that is cut short, or of more than ten bytes") from None

    def fields(self) -> Iterator[Field]:
        at = 0
        while at < len(self.data):
            tag, at = self.varint(at)
            number, kind = tag >> 3, tag & 7
            if kind == 0:
                value, at = self.varint(at)
                yield number, kind, value
                continue
            size = {1: 8, 5: 4}.get(kind)
            if kind == 2:
                size, at = self.varint(at)
            if size is None or number == 0:
                raise self.fail(at, f"tag {tag} is not of protocol buffers")
            if size > len(self.data) - at:
                raise self.fail(at, f"a field of {size} bytes where {len(self.data) - at} are left")
            yield number, kind, Wire(self.data[at : at + size], self.path, self.base + at)
            at += size

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


def read_pb(path: str | Path) -> Graph:
    """A graph from its .pb file; FormatError when it cannot be read or is torn."""
    return parse_pb(read_bounded(path, limit=_SIZE_LIMIT, what="a .pb"), str(path))


def parse_pb(data: bytes, path: str = "<bytes>") -> Graph:
    """A graph from the bytes of a .pb file."""
    for number, _, value in Wire(data, path).fields():
        if number == 4 and isinstance(value, Wire):
            return _graph(value)
    raise FormatError(path, "no graph inside; not a MindSpore graph")


def _graph(message: Wire) -> Graph:
    name, raw, parameters, constants = "", [], [], {}
    for number, _, value in message.fields():
        if not isinstance(value, Wire):
            continue
        if number == 1:
            raw.append(value)
        elif number == 2:
            name = value.text
        elif number == 3:
            parameters.append(_parameter(value))
        elif number == 5:
            constants.update(_named(value, 0))
    known = {parameter.key for parameter in parameters}
    return Graph(name, tuple(_node(part, known, constants) for part in raw), tuple(parameters))


def _strings(message: Wire) -> dict[int, str]:
    return {number: value.text for number, _, value in message.fields() if isinstance(value, Wire)}


def _node(message: Wire, parameters: set[str], constants: dict[str, Any]) -> Node:
    inputs: list[Operand] = []
    attrs: dict[str, Any] = {}
    output: tuple[TensorType, ...] = ()
    texts: dict[int, str] = {}
    for number, _, value in message.fields():
        if not isinstance(value, Wire):
            continue
        if number == 1:
            inputs.append(_operand(_strings(value).get(1, ""), parameters, constants))
        elif number == 5:
            attrs.update(_named(value, 0))
        elif number == 6:
            output = _output(value)
        else:
            texts[number] = value.text
    lines = texts.get(9, "").splitlines()
    trace = tuple(reversed(tuple(frames_of(lines))))
    forward = any("Corresponding forward node candidate" in line for line in lines)
    return Node(
        key=texts.get(2, ""),
        op=texts.get(3, "").removeprefix("PrimFunc_"),
        name=texts.get(8, ""),
        operands=tuple(inputs),
        attrs=attrs,
        host_outputs=output,
        trace=trace,
        from_forward=forward,
    )


def _operand(name: str, parameters: set[str], constants: dict[str, Any]) -> Operand:
    if name in parameters:
        return Operand("parameter", name)
    if name in constants:
        return Operand("constant", value=constants[name])
    return Operand("node", name)


def _parameter(message: Wire) -> GraphParameter:
    name, kind = "", TensorType(None, None)
    for number, _, value in message.fields():
        if number == 1 and isinstance(value, Wire):
            name = value.text
        elif number == 2 and isinstance(value, Wire):
            kind = _type(value, 0)
    return GraphParameter(name, name, kind)


def _output(message: Wire) -> tuple[TensorType, ...]:
    """One type for each output; a tuple type stands for several."""
    kind, elements = 0, []
    for number, _, value in message.fields():
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 3 and isinstance(value, Wire):
            elements = [
                _type(part, 1)
                for index, _, part in value.fields()
                if index == 1 and isinstance(part, Wire)
            ]
    return tuple(elements) if kind in {_TUPLE, _LIST} and elements else (_type(message, 0),)


def _type(message: Wire, depth: int) -> TensorType:
    if depth > _DEPTH_LIMIT:
        return TensorType(None, None, kind="other")
    kind, dtype, shape = 0, None, None
    for number, _, value in message.fields():
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 2 and isinstance(value, Wire):
            dtype, shape = _tensor(value)
    if kind == _TENSOR:
        return TensorType(dtype, shape)
    return TensorType(
        _DTYPES.get(kind),
        (),
        kind="string" if kind == 13 else "scalar" if kind in _DTYPES else "other",
    )


def _tensor(message: Wire) -> tuple[str | None, tuple[int, ...] | None]:
    dtype, sizes = None, []
    for number, _, value in message.fields():
        if number == 1 and isinstance(value, int):
            dtype = _DTYPES.get(value)
        elif number == 2 and isinstance(value, Wire):
            sizes = [
                _size(part)
                for index, _, part in value.fields()
                if index == 1 and isinstance(part, Wire)
            ]
    return dtype, tuple(sizes) if all(size >= 0 for size in sizes) else None


def _size(message: Wire) -> int:
    value = next(
        (value for number, _, value in message.fields() if number == 1 and isinstance(value, int)),
        0,
    )
    return value - (1 << 64) if value >= 1 << 63 else value


def _named(message: Wire, depth: int) -> dict[str, Any]:
    name, value = "", None
    for number, _, part in message.fields():
        if number == 1 and isinstance(part, Wire):
            name = part.text
        elif number == 2 and isinstance(part, Wire):
            value = _value(part, depth)
    return {name: value}


def _value(message: Wire, depth: int) -> Any:
    if depth > _DEPTH_LIMIT:
        return None
    kind = 0
    scalar: Any = None
    items: list[Any] = []
    for number, _, part in message.fields():
        if number == 1 and isinstance(part, int):
            kind = part
        elif number == 2:
            scalar = bool(part)
        elif number == 3 and isinstance(part, int):
            scalar = part - (1 << 64) if part >= 1 << 63 else part
        elif number == 4:
            scalar = part
        elif number in {5, 6} and isinstance(part, Wire) and len(part.data) in {4, 8}:
            scalar = struct.unpack("<f" if len(part.data) == 4 else "<d", part.data)[0]
        elif number == 7 and isinstance(part, Wire):
            scalar = part.text
        elif number == 18 and isinstance(part, Wire):
            items.append(_value(part, depth + 1))
        elif number == 20 and isinstance(part, Wire):
            scalar = {"dtype": _type(part, depth + 1).dtype}
    if kind == _TUPLE:
        return tuple(items)
    return items if kind == _LIST else scalar
