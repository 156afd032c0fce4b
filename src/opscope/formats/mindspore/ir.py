# SPDX-License-Identifier: Apache-2.0
"""Read ms_output_trace_code_graph_{g}.ir: the text MindSpore writes beside a dump (2.3 to 2.10).

One block a node: "%7(name) = Conv2D(%para6_x, %0) {instance name: …} primitive_attrs: {…}
cnode_attrs: {…}
cnode_primal_attrs: {…}", then the line of host types, the line of device types (absent for some),
in 2.10 a line of kinds, then "# Fullname with scope: (…)" (2.3: ": full_name_with_scope: (…)") and
the source trace, outermost frame first. "PrimFunc_" before a type is how newer kernels print and no
part of it. What cannot be understood becomes a problem line with its line number; the other blocks
are still read.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from opscope.formats.bounded import read_bounded_text
from opscope.formats.mindspore.attributes import ValueText, short_dtype, split_top
from opscope.formats.mindspore.graph import Frame, Graph, GraphParameter, Node, Operand, TensorType

_SIZE_LIMIT = 1 << 30
_TRACE_LIMIT = 1 << 14
_LINE_LIMIT = 1 << 22  # constants are printed inside a line
_HEAD = re.compile(r"^\s*(?:%(\d+)(?:\([^)]*\))?\s*=\s*)?([A-Za-z_@][\w.@:$-]*)\(")
_PARAMETER = re.compile(r"^\s*%(para\d+_([^\s:]*))\s*(?:\(.*?\))?\s*:\s*(.*)$")
_NAME = re.compile(r"(?:full_name_with_scope|Fullname with scope)\s*:\s*\((.*)\)\s*$")
_TRACE = re.compile(
    r"^\s*#\s*(?:-\s*)?In file (.+?)(?::(\d{1,9})(?:~(\d{1,9}))?(?:, "
    r"*\d+~\d+)?|\((\d{1,9})\))\s*/(.*?)/?\s*$"
)
_DEVICE = re.compile(r"^<?([A-Za-z0-9_]+?)x([A-Za-z0-9_]+)(?:\[[^\]]*\])?\{([^}]*)\}>?$")
_SHAPE = re.compile(r"^\(([\d,\s-]*)\)$")


def read_ir(path: str | Path) -> Graph:
    """A graph from its .ir file; FormatError when the file cannot be read or is too large to be
    one.
    """
    return parse_ir(read_bounded_text(path, limit=_SIZE_LIMIT, what="an .ir"), str(path))


def parse_ir(text: str, path: str = "<text>") -> Graph:
    """A graph from the text of an .ir file; bad blocks become problems, the rest is kept."""
    name = ""
    nodes: list[Node] = []
    parameters: dict[str, GraphParameter] = {}
    problems: list[str] = []
    block: list[str] = []
    began = 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("# IR entry:"):
            name = line.partition("@")[2].strip() or line.partition(":")[2].strip()
        declared = _PARAMETER.match(line) if line.lstrip().startswith("%para") else None
        if declared is not None:
            parameters.setdefault(declared[1], _parameter(declared[1], declared[2], declared[3]))
        elif _starts_node(line):
            _close(block, began, path, nodes, problems)
            block, began = [line], number
        elif line.startswith("}"):
            _close(block, began, path, nodes, problems)
            block = []
        elif block:
            block.append(line)
    _close(block, began, path, nodes, problems)
    return resolved(Graph(name, tuple(nodes), tuple(parameters.values()), tuple(problems)))


def resolved(graph: Graph) -> Graph:
    """The graph with operands that name a parameter otherwise than its declaration pointing to it:
    their number is the same.

    Inputs of a compiled part of a PyNative program are such; one declared without a name has that
    of its first operand.
    """
    known = {parameter.key: parameter for parameter in graph.parameters}
    numbers = Counter(number_of(key) for key in known)
    by_number = {number_of(key): key for key in known if numbers[number_of(key)] == 1}
    renamed: dict[str, str] = {}
    nodes = []
    for node in graph.nodes:
        moved = {}
        for operand in node.operands:
            declared = by_number.get(number_of(operand.key))
            if operand.kind == "parameter" and operand.key not in known and declared is not None:
                moved[operand.key] = declared
                renamed.setdefault(declared, operand.key.partition("_")[2])
        operands = tuple(
            msgspec.structs.replace(part, key=moved.get(part.key, part.key))
            for part in node.operands
        )
        nodes.append(msgspec.structs.replace(node, operands=operands) if moved else node)
    parameters = tuple(
        msgspec.structs.replace(each, name=each.name or renamed.get(each.key, ""))
        for each in graph.parameters
    )
    return msgspec.structs.replace(graph, nodes=tuple(nodes), parameters=parameters)


def number_of(key: str) -> str:
    """para17 of para17_success."""
    return key.partition("_")[0]


def _starts_node(line: str) -> bool:
    text = line.lstrip()
    return (text.startswith("%") and " = " in text[:400]) or text.startswith("Return(")


def _close(block: list[str], began: int, path: str, nodes: list[Node], problems: list[str]) -> None:
    if not block:
        return
    try:
        nodes.append(_node(block, len(nodes)))
    except ValueError as error:
        problems.append(f"{path}:{began}: not understood: {error}")


def _node(block: list[str], position: int) -> Node:
    head = _head(block)
    if len(head) > _LINE_LIMIT:
        raise ValueError("a line of more than 4 MiB")
    opening = _HEAD.match(head)
    if opening is None:
        raise ValueError(f"no operator in {head.strip()[:60]!r}")
    end = _closing(head, opening.end() - 1)
    types = [
        line.strip()[1:].strip()
        for line in block[1:]
        if line.lstrip().startswith(":") and "->" in line
    ]
    named = next((match[1] for line in block[1:] if (match := _NAME.search(line))), "")
    host, device = _signature(types[0]) if types else ((), ()), None
    if len(types) > 1 and "x" in types[1] and "{" in types[1]:
        device = _signature(types[1])
    attrs = _groups(head[end + 1 :])
    return Node(
        key=opening[1] or f"return{position}",
        op=opening[2].removeprefix("PrimFunc_"),
        name=named,
        operands=tuple(_operand(part) for part in split_top(head[opening.end() : end])),
        attrs=attrs.get("primitive_attrs", {}),
        node_attrs=attrs.get("cnode_attrs", {}),
        primal=attrs.get("cnode_primal_attrs", {}),
        host_inputs=host[0],
        host_outputs=host[1],
        device_inputs=device[0] if device else None,
        device_outputs=device[1] if device else None,
        trace=tuple(frames_of(block)),
        from_forward=any("Corresponding forward node candidate" in line for line in block),
    )


def _head(block: list[str]) -> str:
    """The statement; values of a constant tensor go on over further lines, up to the types."""
    further = itertools.takewhile(lambda line: not line.lstrip().startswith((":", "#")), block[1:])
    return " ".join((block[0], *(line.strip() for line in further)))


def _closing(text: str, start: int) -> int:
    """Where the bracket opened at start closes; ValueError when it never does."""
    depth, quoted = 0, False
    for at in range(start, len(text)):
        mark = text[at]
        if mark == '"':
            quoted = not quoted
        elif not quoted and mark in "([{":
            depth += 1
        elif not quoted and mark in ")]}":
            depth -= 1
            if depth == 0:
                return at
    raise ValueError("a bracket is never closed")


def _groups(text: str) -> dict[str, Any]:
    """The three attribute groups after the operands."""
    groups: dict[str, Any] = {}
    for name in ("primitive_attrs", "cnode_attrs", "cnode_primal_attrs"):
        start = text.find(f" {name}: {{")
        if start >= 0:
            groups[name] = ValueText(text, start + len(name) + 3).mapping()
    return groups


def _operand(text: str) -> Operand:
    if text.startswith("%para"):
        return Operand("parameter", text[1:].split("(", maxsplit=1)[0])
    if re.fullmatch(r"%\d+(\(.*\))?", text):
        return Operand("node", text[1:].split("(", maxsplit=1)[0])
    return Operand("constant", value=ValueText(text).value())


def _signature(text: str) -> tuple[tuple[TensorType, ...], tuple[TensorType, ...]]:
    """(inputs) -> (outputs) of a host or device type line."""
    left, _, right = text.partition(" -> ")
    return _types(left), _spread(right)


def _types(text: str) -> tuple[TensorType, ...]:
    body = text.strip()
    if not (body.startswith("(") and body.endswith(")")):
        return ()
    return tuple(parse_type(part) for part in split_top(body[1:-1]))


def _spread(text: str) -> tuple[TensorType, ...]:
    """Output types; one tuple of tensors, <Tuple[Tensor[Float32]*5], TupleShape((2, 4), (4), …)>,
    is several outputs.
    """
    types = _types(text)
    if len(types) != 1 or types[0].kind != "tuple":
        return types
    parts = split_top(text.strip()[1:-1].strip().removeprefix("<").removesuffix(">"))
    kinds: list[str] = []
    for part in split_top(parts[0].removeprefix("Tuple[").removesuffix("]")):
        kind, _, count = part.partition("*")
        kinds += [kind] * min(int(count), 4096) if count.isdigit() else [kind]
    shapes = next(
        (
            split_top(part[len("TupleShape(") : -1])
            for part in parts[1:]
            if part.startswith("TupleShape(")
        ),
        [],
    )
    if len(shapes) != len(kinds):
        shapes = [""] * len(kinds)
    return tuple(
        parse_type(f"<{kind}, {shape}>" if shape else f"<{kind}>")
        for kind, shape in zip(kinds, shapes, strict=True)
    )


def parse_type(text: str) -> TensorType:
    """One type: <Tensor[Float16], (4, 16)>, <Ref[Tensor[Float32]], (8), ref_key=w>,
    <Float32xDefaultFormat[…]{4, 3}>, …
    """
    device = _DEVICE.match(text)
    if device:
        return TensorType(short_dtype(device[1]), _sizes(device[3]), device[2])
    parts = split_top(text.strip().removeprefix("<").removesuffix(">"))
    kind = parts[0] if parts else ""
    inner = re.search(r"Tensor[\[(](\w+)[\])]", kind)
    shape = next((_sizes(sizes[1]) for part in parts[1:] if (sizes := _SHAPE.match(part))), None)
    if kind.startswith("Tuple"):
        return TensorType(short_dtype(inner[1]) if inner else None, None, kind="tuple")
    if inner:
        ref = next(
            (part.partition("=")[2].lstrip(":") for part in parts if part.startswith("ref_key=")),
            None,
        )
        dtype = short_dtype(inner[1])
        return TensorType(
            dtype,
            shape,
            None,
            ref,
            "is_inplace" in parts,
            "string" if dtype == "string" else "tensor",
        )
    if kind == "String":
        return TensorType("string", (), kind="string")
    return TensorType(short_dtype(kind), (), kind="scalar" if short_dtype(kind) else "other")


def _sizes(text: str) -> tuple[int, ...] | None:
    try:
        sizes = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        return None
    return sizes if all(0 <= size < 1 << 63 for size in sizes) else None


def _parameter(key: str, name: str, text: str) -> GraphParameter:
    """%para1_fc.bias: <Ref[Tensor[Float32]], (10), ref_key=fc.bias, …>  :  has_default  :  <device>  :  IsWeight: true"""  # noqa: E501
    typed = re.match(r"<(.*?)>\s*(?::|$)", text)
    host = parse_type(f"<{typed[1]}>") if typed else TensorType(None, None)
    weight = re.search(r"IsWeight:\s*(true|false)", text)
    return GraphParameter(key, host.ref_key or name, host, weight[1] == "true" if weight else None)


def frames_of(lines: Iterable[str]) -> Iterator[Frame]:
    """Source lines of a trace, in the order they stand."""
    for line in lines:
        traced = _TRACE.match(line) if len(line) < _TRACE_LIMIT else None
        if traced is None:
            continue
        first = int(traced[2] or traced[4])
        code = traced[5].strip()
        yield Frame(
            traced[1],
            first,
            int(traced[3] or first),
            code,
            code.startswith(("def ", "async def ")) and bool(traced[3]),
        )
