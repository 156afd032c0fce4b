# SPDX-License-Identifier: Apache-2.0
"""What a graph as JSON (atc --mode=1 or 5) says of operators on the device: which operators of the
original model they stand for.

    graph[].op[]  name, type, input[] ("producer:output", ":-1" of a control edge), attr[] {key,
                  value}, output_desc[] {attr[]}

_datadump_original_op_names lists the originals of an operator: none listed means a new operator, no
list that the name is its own. _datadump_origin_name and _datadump_origin_output_index of an output
say which output of which original it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from opscope.errors import FormatError
from opscope.formats.bounded_json import load_json
from opscope.formats.cann.names import sanitised
from opscope.operators.catalogue import traits_of

# Operators between a quantisation and its reversal are told by names and element types, as
# msaccucmp tells them.
_QUANTISES = re.compile(r"_quant_layer|/AscendQuant|/AscendWeightQuant|\.quant|\.weight_quant")
_REVERSES = re.compile(
    r"_dequant_layer|_anti_quant_layer|/AscendDequant|/AntiQuant|\.dequant|\.anti_quant"
)
_REVERSING = ("_dequant_layer", "AscendDequant", "_dequant")
_PLAIN, _BETWEEN, _QUANTISED, _REVERSED = range(4)


class Output(msgspec.Struct, frozen=True):
    """The original that one output holds: operator and number; name None where it is a new
    operator's.
    """

    name: str | None
    index: int


class FusedOp(msgspec.Struct, frozen=True):
    """One operator of the graph: originals, outputs, and the producers (name, output) of its data
    inputs.
    """

    name: str
    op_type: str
    originals: tuple[str, ...] | None
    outputs: tuple[Output, ...]
    producers: tuple[tuple[str, int], ...]
    level1: str = ""  # number of its fusion in the level 1 buffer
    dtypes: tuple[str, ...] = ()
    # stands between a quantisation and its reversal: no original has such values
    quantised: bool = False

    @property
    def group(self) -> str:
        """What operators share that stand for the same originals: the fusion in level 1, the
        originals, else the name itself.
        """
        return self.level1 or "\n".join(self.originals or ()) or self.name

    def original(self, index: int) -> Output:
        """What output `index` holds."""
        if index < len(self.outputs):
            return self.outputs[index]
        return _fallback(self.name, self.originals, index)


class Graph(msgspec.Struct, frozen=True):
    """Operators by their name as it stands in file names."""

    ops: dict[str, FusedOp]

    def golden_of(self, name: str, io: str, index: int) -> Output | None:
        """The original output that a tensor of an operator should equal; None where the graph does
        not say.
        """
        op = self.ops.get(sanitised(name))
        if op is None:
            return None
        if io == "output":
            return op.original(index)
        return self._behind(op, index)

    def _behind(self, op: FusedOp, index: int) -> Output | None:
        for _ in range(64):
            if index >= len(op.producers):
                return None
            name, output = op.producers[index]
            producer = self.ops.get(sanitised(name))
            if producer is None:
                return Output(name, output)
            original = producer.original(output)
            if original.name is not None or not hands_on(producer.op_type):
                return original
            op, index = producer, 0
        return None


def hands_on(op_type: str) -> bool:
    """Whether a type gives on what it read: a golden is looked for behind it."""
    known = traits_of(op_type)
    return known.handed_on or known.cast


def is_graph(path: Path) -> bool:
    """Whether a file is such a graph, as far as its outermost object tells."""
    try:
        with path.open("rb") as file:
            if not file.read(64).lstrip().startswith(b"{"):
                return False
        content = load_json(path)
    except (OSError, FormatError):
        return False
    return isinstance(content, dict) and isinstance(content.get("graph"), list)


def read_graph(path: Path) -> Graph:
    """The graph of a JSON file; raises FormatError."""
    content = load_json(path)
    graphs = content.get("graph") if isinstance(content, dict) else None
    if not isinstance(graphs, list):
        raise FormatError(
            path, 'no list "graph" in it; make it with atc --mode=1 --om=MODEL.om --json=THIS'
        )
    ops = [op for entry in _entries(graphs, "op") if (op := _op(entry)) is not None]
    return Graph({sanitised(op.name): op for op in _marked(ops)})


def _entries(items: list[Any], key: str) -> Iterator[dict[str, Any]]:
    for item in items:
        yield from _tables(item.get(key) if isinstance(item, dict) else None)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _tables(value: Any) -> Iterator[dict[str, Any]]:
    """The objects of a list; none of anything else."""
    yield from (one for one in _listed(value) if isinstance(one, dict))


def _op(entry: dict[str, Any]) -> FusedOp | None:
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        return None
    held = _attribute(entry, "_datadump_original_op_names")
    originals = None if held is None else _words(held.get("list"))
    descriptions = list(_tables(entry.get("output_desc")))
    outputs = tuple(
        _output(name, originals, one, number) for number, one in enumerate(descriptions)
    )
    level1 = (_attribute(entry, "_L1_fusion_sub_graph_no") or {}).get("s")
    return FusedOp(
        name,
        str(entry.get("type") or ""),
        originals,
        outputs,
        tuple(_producers(entry.get("input"))),
        level1=level1 if isinstance(level1, str) else "",
        dtypes=tuple(str(one.get("dtype") or "") for one in descriptions),
    )


def _words(value: Any) -> tuple[str, ...]:
    return tuple(
        word
        for word in _listed(value.get("s") if isinstance(value, dict) else None)
        if isinstance(word, str) and word
    )


def _attribute(entry: dict[str, Any], key: str) -> dict[str, Any] | None:
    for one in _tables(entry.get("attr")):
        if one.get("key") == key and isinstance(one.get("value"), dict):
            value: dict[str, Any] = one["value"]
            return value
    return None


def _output(
    name: str, originals: tuple[str, ...] | None, description: dict[str, Any], number: int
) -> Output:
    said = (_attribute(description, "_datadump_origin_name") or {}).get("s")
    at = (_attribute(description, "_datadump_origin_output_index") or {}).get("i", 0)
    if isinstance(said, str) and said:
        return Output(said, at if isinstance(at, int) and 0 <= at < 1 << 31 else 0)
    return _fallback(name, originals, number)


def _fallback(name: str, originals: tuple[str, ...] | None, number: int) -> Output:
    if originals is None:
        return Output(name, number)
    return Output(originals[-1] if originals else None, number)


def _producers(inputs: Any) -> Iterator[tuple[str, int]]:
    for text in _listed(inputs):
        name, _, number = str(text).rpartition(":")
        if name and number.isascii() and number.isdigit() and len(number) < 8:
            yield name, int(number)


def _marked(ops: Iterable[FusedOp]) -> list[FusedOp]:
    """Operators in the order of the graph, those between a quantisation and its reversal marked."""
    known: dict[str, list[int]] = {}
    marked = []
    for op in ops:
        between = any(
            name in known
            and number < len(known[name])
            and known[name][number] in (_QUANTISED, _BETWEEN)
            for name, number in op.producers
        )
        known[op.name] = [_stage(op, dtype, between=between) for dtype in op.dtypes]
        reversing = all(kind == _REVERSED for kind in known[op.name])
        marked.append(msgspec.structs.replace(op, quantised=between and not reversing))
    return marked


def _stage(op: FusedOp, dtype: str, *, between: bool) -> int:
    words = (op.name, "".join(op.originals or ()))
    if dtype == "DT_INT8" and any(_QUANTISES.search(word) for word in words):
        return _QUANTISED
    if dtype == "DT_FLOAT16" and any(_REVERSES.search(word) for word in words):
        return _REVERSED
    return _BETWEEN if between else _PLAIN


def has_true(op: FusedOp, io: str) -> bool:
    """Whether inputs, or outputs, of an operator have values that an original has: quantised ones
    have none.
    """
    if op.quantised:
        return False
    if io == "input":
        return op.op_type != "AscendDequant" and not op.name.endswith(_REVERSING)
    return op.op_type != "AscendQuant"
