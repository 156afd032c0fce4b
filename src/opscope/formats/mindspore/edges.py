# SPDX-License-Identifier: Apache-2.0
"""Data-flow edges of one execution of a graph: which version each operand and output of each kernel
is.

Load and Depend hand their first operand on, MakeTuple and TupleGetItem only group; so an operand
leads to the output of a kernel, to a parameter, or to a constant. A dump is taken after the kernel
ran: the file of an operand that the kernel writes in place (the variable of ApplyMomentum) holds
the state after the call. Such a slot carries the new version, whose producer the call is; as an
input its row has no version, since the state that was read is not in the dump.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from opscope.formats.mindspore.graph import (
    ITEMS,
    PASS_THROUGH,
    TUPLES,
    Graph,
    Node,
    Operand,
    TensorType,
    is_fed,
)

_CHAIN_LIMIT = 10_000
_RETURNS_VARIABLE = (
    "Assign",
    "Apply",
    "Scatter",
    "SparseApply",
    "FusedApply",
)  # output 0 is the updated first operand
_MONADS = ("UMonad", "IOMonad", "Monad")


class Source(msgspec.Struct, frozen=True):
    """What an operand leads to: output (node key, which), parameter (key), constant (value), or
    parts of a tuple.
    """

    kind: str
    key: str = ""
    output: int = 0
    value: Any = None
    parts: tuple[Source, ...] = ()


class Slot(msgspec.Struct, frozen=True):
    """One operand or output of a kernel in this execution; parameter is the name where it is
    one, fed says that the program feeds it and that it is no weight.
    """

    position: int
    version: int | None
    type: TensorType | None
    source: Source | None = None
    parameter: str | None = None
    written: bool = False
    fed: bool = False


class Wiring(msgspec.Struct, frozen=True):
    """Operands and outputs of one kernel, operands without the monads and with tuples spread
    out.
    """

    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]


class Tracer:
    """Follows operands through a graph's plumbing."""

    def __init__(self, graph: Graph) -> None:
        self.nodes = {node.key: node for node in graph.nodes}
        self.parameters = {parameter.key: parameter for parameter in graph.parameters}
        self.flags_in_place = any(parameter.type.in_place for parameter in graph.parameters)

    def source(self, operand: Operand) -> Source | None:
        """Where an operand comes from; None for monads and for chains that make no sense."""
        picks: list[int] = []
        for _ in range(_CHAIN_LIMIT):
            if operand.kind == "parameter":
                return Source("parameter", operand.key) if operand.key in self.parameters else None
            if operand.kind == "constant":
                return None if _is_monad(operand.value) else Source("constant", value=operand.value)
            node = self.nodes.get(operand.key)
            if node is None or node.op == "UpdateState":
                return None
            if node.op in PASS_THROUGH and node.operands:
                operand = node.operands[0]
            elif node.op in ITEMS and len(node.operands) > 1:
                picks.append(_index(node.operands[1]))
                operand = node.operands[0]
            elif node.op in TUPLES and picks:
                pick = picks.pop()
                if pick >= len(node.operands):
                    return None
                operand = node.operands[pick]
            elif node.op in TUPLES:
                return Source(
                    "tuple",
                    parts=tuple(
                        part
                        for item in node.operands
                        if item.key != node.key and (part := self._part(item))
                    ),
                )
            else:
                return Source("output", node.key, picks.pop() if picks else 0)
        return None

    def _part(self, operand: Operand) -> Source | None:
        """A part of a tuple; tuples inside tuples are not spread."""
        node = self.nodes.get(operand.key) if operand.kind == "node" else None
        return None if node is not None and node.op in TUPLES else self.source(operand)

    def operands(self, node: Node) -> list[tuple[Operand, Source]]:
        """Operands as the kernel counts them: monads left out, a tuple of tensors spread where the
        types say so.
        """
        known = [
            (operand, source)
            for operand in node.operands
            if (source := self.source(operand)) is not None
        ]
        wanted = len(node.device_inputs) if node.device_inputs is not None else None
        if not any(source.kind == "tuple" for _, source in known) or wanted == len(known):
            return known
        return [
            (operand, part)
            for operand, source in known
            for part in (source.parts if source.kind == "tuple" else (source,))
        ]


def _is_monad(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(_MONADS)


def _index(operand: Operand) -> int:
    return operand.value if isinstance(operand.value, int) and operand.value >= 0 else 0


class Versions:
    """Versions of one process: a counter, and the present version of every weight by name."""

    def __init__(self) -> None:
        self._next = 0
        self.weights: dict[str, int] = {}

    def new(self) -> int:
        self._next += 1
        return self._next

    def forget_weights(self) -> None:
        """After iterations that were not dumped the weights are others."""
        self.weights.clear()


def wire(
    graph: Graph, order: Iterable[Node], versions: Versions, *, handed_on: bool = False
) -> dict[str, Wiring]:
    """Versions of one execution of a graph, by node key; order is that of execution.

    handed_on: other graphs of the step ran before, so its inputs may be what they made, and nothing
    says which: no versions.
    """
    tracer = Tracer(graph)
    fed = (
        {} if handed_on else {p.key: versions.new() for p in graph.parameters if p.weight is False}
    )
    for parameter in graph.parameters:
        if parameter.weight is not False:
            versions.weights.setdefault(parameter.name, versions.new())
    made: dict[tuple[str, int], int] = {}
    wirings: dict[str, Wiring] = {}
    for node in order:
        wirings[node.key] = _wire_node(node, tracer, versions, (made, fed))
    return wirings


def _wire_node(
    node: Node,
    tracer: Tracer,
    versions: Versions,
    known: tuple[dict[tuple[str, int], int], dict[str, int]],
) -> Wiring:
    made, fed = known
    pairs = tracer.operands(node)
    written = _written(node, pairs, tracer)
    for position in written:
        versions.weights[tracer.parameters[pairs[position][1].key].name] = versions.new()

    def version(source: Source) -> int | None:
        if source.kind == "output":
            return made.setdefault((source.key, source.output), versions.new())
        if source.kind == "parameter":
            return fed.get(source.key) or versions.weights.get(tracer.parameters[source.key].name)
        return None

    types = node.device_inputs or tuple(kind for kind in node.host_inputs if kind.kind != "other")
    inputs = tuple(
        _input(i, source, version, (tracer, types, i in written))
        for i, (_, source) in enumerate(pairs)
    )
    outputs = tuple(_output(node, i, made, versions, inputs) for i in range(_output_count(node)))
    return Wiring(inputs, outputs)


def _input(
    position: int,
    source: Source,
    version: Callable[[Source], int | None],
    about: tuple[Tracer, tuple[TensorType, ...], bool],
) -> Slot:
    tracer, types, written = about
    parameter = tracer.parameters[source.key] if source.kind == "parameter" else None
    return Slot(
        position,
        version(source),
        types[position] if position < len(types) else None,
        source,
        parameter.name if parameter is not None else None,
        written,
        fed=parameter is not None and is_fed(parameter),
    )


def _written(node: Node, pairs: list[tuple[Operand, Source]], tracer: Tracer) -> frozenset[int]:
    """Positions of the parameters that a kernel with side effects writes; those it reads through
    Load it does not write.
    """
    refs = {kind.ref_key for kind in node.host_outputs if kind.ref_key}
    if node.attrs.get("side_effect_mem") is not True and not refs:
        return frozenset()
    weights = {
        position: tracer.parameters[source.key]
        for position, (operand, source) in enumerate(pairs)
        if operand.kind == source.kind == "parameter"
        and tracer.parameters[source.key].weight is not False
    }
    written = {
        position
        for position, weight in weights.items()
        if weight.type.in_place or not tracer.flags_in_place or weight.name in refs
    }
    if not written and 0 in weights:
        # An optimizer compiled by itself flags its counter alone; it writes the weight and what is
        # kept of its shape.
        written = {
            position
            for position, weight in weights.items()
            if weight.type.shape == weights[0].type.shape
        }
    return frozenset(written)


def _output_count(node: Node) -> int:
    types = node.device_outputs or node.host_outputs
    return len([kind for kind in types if kind.kind != "other"]) if types else 1


def _output(
    node: Node,
    position: int,
    made: dict[tuple[str, int], int],
    versions: Versions,
    inputs: tuple[Slot, ...],
) -> Slot:
    """An output's version: the written parameter's where the output is that parameter, else a new
    one.
    """
    types = node.device_outputs or node.host_outputs
    kind = types[position] if position < len(types) else None
    ref = node.host_outputs[position].ref_key if position < len(node.host_outputs) else None
    alias = next(
        (
            slot
            for slot in inputs
            if slot.written
            and (slot.parameter == ref or (position == 0 and _returns(node, slot, kind)))
        ),
        None,
    )
    if alias is not None and alias.version is not None:
        made[node.key, position] = alias.version
        return Slot(position, alias.version, kind, parameter=alias.parameter)
    return Slot(position, made.setdefault((node.key, position), versions.new()), kind)


def _returns(node: Node, slot: Slot, kind: TensorType | None) -> bool:
    """Whether output 0 is the first operand after the update: Assign… and Apply… of the same type
    and size.
    """
    if (
        slot.position != 0
        or not node.op.startswith(_RETURNS_VARIABLE)
        or kind is None
        or slot.type is None
    ):
        return False
    sizes = [math.prod(part.shape) if part.shape is not None else -1 for part in (kind, slot.type)]
    return kind.dtype == slot.type.dtype and sizes[0] == sizes[1]
