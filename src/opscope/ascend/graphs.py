# SPDX-License-Identifier: Apache-2.0
"""The node of a kernel in the graph engine's dumps: ge_proto text, ge_onnx text, and a model as
JSON (atc --mode=1).

Graphs may be hundreds of megabytes of text, so only the blocks of wanted nodes are parsed. A block
is found by its indentation, as the writer sets it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec

from opscope.ascend import texts
from opscope.ascend.texts import first
from opscope.formats.bounded import read_bounded_text
from opscope.formats.bounded_json import load_json

_MAX_BLOCK = 64 << 20
_MAX_BLOCKS = 4096
PROTO, ONNX, JSON = "ge_proto", "ge_onnx", "json"


class TensorDesc(msgspec.Struct, frozen=True, kw_only=True):
    """One input or output of a node as the graph has it; a dimension of -1 is not known there."""

    dtype: str | None = None
    format: str | None = None
    shape: tuple[int, ...] | None = None
    origin_shape: tuple[int, ...] | None = None
    origin_format: str | None = None
    size: int | None = None


class Producer(msgspec.Struct, frozen=True, kw_only=True):
    """The node an input comes from; type is None where the graph beside it does not have that
    node.
    """

    slot: int
    name: str
    index: int
    type: str | None = None
    original: tuple[str, ...] = ()


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a graph dump; original names the operators of the user's model that it stands
    for.
    """

    name: str
    type: str
    file: str
    inputs: tuple[TensorDesc, ...] = ()
    outputs: tuple[TensorDesc, ...] = ()
    input_names: tuple[str, ...] = ()
    producers: tuple[Producer, ...] = ()
    consumers: tuple[str, ...] = ()
    attributes: dict[str, Any] = {}
    original: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    id: int | None = None
    stream_id: int | None = None

    @property
    def operator_attributes(self) -> dict[str, Any]:
        """Attributes of the operator itself, in the order of its prototype where the graph has
        that, without the engine's own.
        """
        known = self.attributes.get("_ir_attr_names")
        if isinstance(known, list | tuple):
            return {name: self.attributes[name] for name in known if name in self.attributes}
        return {name: value for name, value in self.attributes.items() if _is_operators(name)}


_SIZE_LIMIT = 1 << 30
_ENGINE = re.compile(
    r"^_|kernelname|_pattern$|^(INPUT|OUTPUT)_IS_VAR$|^OwnerGraph|^(src|dst|input|output)_(name|index|i|desc|para)|^is_(first|last|input)|^id$"
    r"|^compile_info|^globalworkspace|^tvm_|^tbe_|^op_para_size$|^(fusion_scope|imply_type|stream_id|workspace.*|wspMode|optional\w+Mode)$"
    r"|^(continuous_\w+|core_type_value|support_dynamicshape|ub_atomic_params|kernel_\w+|.*_original_type|T(?:params|indices|axis|idx)?)$"
)


def _is_operators(name: str) -> bool:
    return not _ENGINE.search(name)


def kind(path: Path) -> str | None:
    """Which kind of graph text a file is, by its first bytes; None for what is no graph text."""
    try:
        with path.open("rb") as stream:
            start = stream.read(4096)
    except OSError:
        return None
    if re.search(rb"^\s*(?:ir_version:|producer_name:)", start) or (
        b"\n  node {" in start[:400] and start.lstrip().startswith(b"graph {")
    ):
        return ONNX
    if re.match(
        rb"\s*(?:(?:name|custom_version): \"[^\"]*\"\s*|version: \d+\s*)*(?:attr|graph) \{", start
    ):
        return PROTO
    return None


def text_of(path: Path) -> str:
    """The text of a graph dump; FormatError for a file that cannot be read, or is larger than any
    graph.
    """
    return read_bounded_text(path, limit=_SIZE_LIMIT, what="a graph")


def find_nodes(
    path: Path, *, names: Iterable[str], kernels: Iterable[str] = (), form: str | None = None
) -> list[Node]:
    """The nodes of these names, or whose text holds one of these kernel names. FormatError for a
    file that cannot be read.
    """
    form = form or kind(path) or PROTO
    if form == JSON:
        return _json_nodes(path, set(names), tuple(kernels))
    text = text_of(path)
    word = "op" if form == PROTO else "node"
    spans = dict.fromkeys(_spans(text, word, names=set(names), kernels=tuple(kernels)))
    blocks = [first(texts.parse(text[start:stop], path), word) for start, stop in spans]
    read = _proto_node if form == PROTO else _onnx_node
    nodes = [read(block, path) for block in blocks if isinstance(block, dict)]
    return [_with_producers(node, _types(text, word, node, path)) for node in nodes]


def _spans(
    text: str, word: str, *, names: set[str], kernels: Sequence[str]
) -> Iterator[tuple[int, int]]:
    """Start and end of the blocks with these names, then of those that hold these kernels."""
    for name in names:
        quoted = re.escape(_quoted(name))
        for named_line in list(re.finditer(rf"^( *)name: {quoted}$", text, re.MULTILINE))[
            :_MAX_BLOCKS
        ]:
            span = _enclosing(text, word, named_line.start(), len(named_line[1]) - 2)
            if span is not None:
                yield span
    for kernel in kernels:
        at = text.find(kernel)
        count = 0
        while at >= 0 and count < _MAX_BLOCKS:
            span = _innermost(text, word, at)
            if span is not None:
                yield span
            at = text.find(kernel, at + 1 if span is None else span[1])
            count += 1


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _enclosing(text: str, word: str, at: int, indent: int) -> tuple[int, int] | None:
    """The block `word {` of this indentation around a place."""
    if indent < 0:
        return None
    margin = "\n" + " " * indent
    start = max(text.rfind(f"{margin}{word} {{", 0, at), -1)
    if start < 0:
        if not text.startswith(f"{margin[1:]}{word} {{"):
            return None
        start = -1
    stop = text.find(margin + "}", start + 1)
    if stop < at or stop - start > _MAX_BLOCK:
        return None
    return start + 1, stop + len(margin) + 1


def _innermost(text: str, word: str, at: int) -> tuple[int, int] | None:
    """The smallest block `word {` around a place, whatever its indentation."""
    stop = at
    for _ in range(64):
        start = text.rfind(f"{word} {{", 0, stop)
        if start < 0:
            return None
        line = text.rfind("\n", 0, start) + 1
        if text[line:start].strip(" "):
            stop = start
            continue
        span = _enclosing(text, word, at, start - line)
        if span is not None:
            return span
        stop = start
    return None


def _with_producers(node: Node, known: Mapping[str, tuple[str, tuple[str, ...]]]) -> Node:
    made = tuple(
        msgspec.structs.replace(
            producer, type=known[producer.name][0], original=known[producer.name][1]
        )
        if producer.name in known
        else producer
        for producer in node.producers
    )
    return msgspec.structs.replace(node, producers=made)


def _types(text: str, word: str, node: Node, path: Path) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Type and original names of the nodes that this one reads."""
    types: dict[str, tuple[str, tuple[str, ...]]] = {}
    for start, stop in _spans(
        text, word, names={producer.name for producer in node.producers}, kernels=()
    ):
        block = first(texts.parse(text[start:stop], path), word)
        producer = _proto_node(block, path) if word == "op" else _onnx_node(block, path)
        types.setdefault(producer.name, (producer.type, producer.original))
    return types


def _proto_node(block: Mapping[str, list[Any]], path: str | PathLike[str]) -> Node:
    attributes = _attributes(block)
    kernels = tuple(
        str(value)
        for key, value in attributes.items()
        if key.endswith(("kernelname", "_tbe_kernel_name")) and value
    )
    return Node(
        name=str(first(dict(block), "name", "")),
        type=str(first(dict(block), "type", "")),
        file=str(path),
        inputs=tuple(_desc(desc) for desc in block.get("input_desc", ())),
        outputs=tuple(_desc(desc) for desc in block.get("output_desc", ())),
        input_names=_in_order(attributes),
        producers=_producers(block.get("input", ())),
        consumers=tuple(dict.fromkeys(str(name) for name in block.get("dst_name", ()))),
        attributes=attributes,
        original=_names(attributes.get("_datadump_original_op_names")),
        kernels=tuple(dict.fromkeys(kernels)),
        id=_whole(first(dict(block), "id")),
        stream_id=_whole(first(dict(block), "stream_id")),
    )


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _names(value: Any) -> tuple[str, ...]:
    listed = (
        value if isinstance(value, list | tuple) else (value,) if isinstance(value, str) else ()
    )
    return tuple(str(name) for name in listed if name)


def _in_order(attributes: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the inputs in the order of the prototype."""
    known = attributes.get("_ir_inputs_key")
    return _names(known)


def _producers(inputs: Iterable[Any]) -> tuple[Producer, ...]:
    producers = []
    for slot, text in enumerate(inputs):
        name, _, index = str(text).rpartition(":")
        if name and index.lstrip("-").isdecimal() and int(index[:9]) >= 0:
            producers.append(Producer(slot=slot, name=name, index=int(index[:9])))
    return tuple(producers)


_LISTS = ("s", "i", "f", "b", "dt", "bt")


def _attributes(block: Mapping[str, list[Any]]) -> dict[str, Any]:
    return {
        str(first(entry, "key", "")): _attribute(first(entry, "value", {}))
        for entry in block.get("attr", ())
    }


def _attribute(value: Any) -> Any:
    """A value of an attribute as a Python value: a text, number, bool, list of them, or None."""
    if not isinstance(value, Mapping):
        return value
    inner = first(dict(value), "list")
    if isinstance(inner, Mapping):
        return next((list(inner[key]) for key in _LISTS if inner.get(key)), [])
    if "list_list_int" in value:
        rows = first(dict(value), "list_list_int", {})
        rows = rows.get("list_list_i", ()) if isinstance(rows, Mapping) else ()
        return [list(row.get("list_i", ())) for row in rows if isinstance(row, Mapping)]
    return next((first(dict(value), key) for key in _LISTS if key in value), None)


def _desc(block: Mapping[str, list[Any]]) -> TensorDesc:
    attributes = _attributes(block)
    shape = first(dict(block), "shape")
    origin = attributes.get("origin_shape")
    known = bool(attributes.get("origin_shape_initialized", True)) and isinstance(origin, list)
    return TensorDesc(
        dtype=first(dict(block), "dtype"),
        format=first(dict(block), "layout"),
        shape=_dims(shape.get("dim", ())) if isinstance(shape, Mapping) else None,
        origin_shape=_dims(origin) if known and isinstance(origin, list) else None,
        origin_format=attributes.get("origin_format"),
        size=_whole(first(dict(block), "size")),
    )


def _dims(values: Iterable[Any]) -> tuple[int, ...]:
    return tuple(value for value in values if isinstance(value, int))[:32]


def _onnx_node(block: Mapping[str, list[Any]], path: str | PathLike[str]) -> Node:
    attributes: dict[str, Any] = {}
    for entry in block.get("attribute", ()):
        name = str(first(entry, "name", ""))
        attributes.setdefault(name, _onnx_value(entry))
    kernels = (
        str(value) for key, value in attributes.items() if key.endswith("kernelname") and value
    )
    return Node(
        name=str(first(dict(block), "name", "")),
        type=str(first(dict(block), "op_type", "")).removeprefix("ge:"),
        file=str(path),
        inputs=_onnx_descs(attributes, "input"),
        outputs=_onnx_descs(attributes, "output"),
        input_names=_in_order(attributes),
        producers=_producers(block.get("input", ())),
        consumers=_names(attributes.get("dst_name")),
        attributes={
            key: value
            for key, value in attributes.items()
            if not re.match(r"(input|output)_desc_", key)
        },
        original=_names(attributes.get("_datadump_original_op_names")),
        kernels=tuple(dict.fromkeys(kernels)),
        id=_whole(attributes.get("id")),
        stream_id=_whole(attributes.get("stream_id")),
    )


def _onnx_value(entry: Mapping[str, list[Any]]) -> Any:
    for key in ("strings", "ints", "floats"):
        if key in entry:
            return list(entry[key])
    for key in ("s", "i", "f"):
        if key in entry:
            return first(dict(entry), key)
    return {"INTS": [], "STRINGS": [], "FLOATS": [], "INT": 0, "STRING": "", "FLOAT": 0.0}.get(
        str(first(dict(entry), "type", ""))
    )


def _onnx_descs(attributes: Mapping[str, Any], side: str) -> tuple[TensorDesc, ...]:
    count = attributes.get(f"{side}_desc_nums", 0)
    descs = []
    for slot in range(count if isinstance(count, int) and 0 <= count < 4096 else 0):
        shape, origin = (
            attributes.get(f"{side}_desc_{what}:{slot}") for what in ("shape", "origin_shape")
        )
        descs.append(
            TensorDesc(
                dtype=attributes.get(f"{side}_desc_dtype:{slot}"),
                format=attributes.get(f"{side}_desc_layout:{slot}"),
                shape=_dims(shape) if isinstance(shape, list) else None,
                origin_shape=_dims(origin) if isinstance(origin, list) else None,
                origin_format=attributes.get(f"{side}_desc_origin_layout:{slot}"),
                size=_whole(attributes.get(f"{side}_desc_size:{slot}")),
            )
        )
    return tuple(descs)


def _json_nodes(path: Path, names: set[str], kernels: Sequence[str]) -> list[Node]:
    """Nodes of a model that atc wrote as JSON: the same message, its fields single or lists."""
    document = load_json(path)
    graphs = document.get("graph", ()) if isinstance(document, dict) else ()
    blocks = [
        op
        for graph in graphs
        if isinstance(graph, dict)
        for op in graph.get("op", ())
        if isinstance(op, dict)
    ]
    nodes = [_proto_node(_listed(op), path) for op in blocks if _wanted(op, names, kernels)]
    wanted = {producer.name for node in nodes for producer in node.producers}
    made = (_proto_node(_listed(op), path) for op in blocks if op.get("name") in wanted)
    known = {node.name: (node.type, node.original) for node in made}
    return [_with_producers(node, known) for node in nodes]


def _wanted(op: Mapping[str, Any], names: set[str], kernels: Sequence[str]) -> bool:
    if op.get("name") in names:
        return True
    values = (
        attribute.get("value", {})
        for attribute in op.get("attr", ())
        if isinstance(attribute, dict) and str(attribute.get("key", "")).endswith("kernelname")
    )
    return any(isinstance(value, dict) and value.get("s") in kernels for value in values)


def _listed(value: Any) -> Any:
    """JSON in the form that text parses to: every field a list."""
    if isinstance(value, dict):
        return {
            key: [_listed(each) for each in (item if isinstance(item, list) else [item])]
            for key, item in value.items()
        }
    return value
