# SPDX-License-Identifier: Apache-2.0
"""What a MindSpore graph says, whether it was read from its .ir text or its .pb: nodes, operands,
types, source traces.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

# Plumbing of the graph: these are not kernels, run nothing and have no files.
PLUMBING = frozenset(
    {
        "Load",
        "UpdateState",
        "Return",
        "MakeTuple",
        "MakeList",
        "Depend",
        "TupleGetItem",
        "ListGetItem",
        "tuple_getitem",
        "list_getitem",
        "make_tuple",
        "make_list",
        "Partial",
        "Switch",
        "SwitchLayer",
        "Call",
        "Parameter",
        "ControlDepend",
        "StopGradient",
        "RealMakeTuple",
        "RealTupleGetItem",
    }
)
PASS_THROUGH = frozenset({"Load", "Depend", "StopGradient"})  # give back their first operand
TUPLES = frozenset({"MakeTuple", "MakeList", "make_tuple", "make_list", "RealMakeTuple"})
ITEMS = frozenset(
    {"TupleGetItem", "ListGetItem", "tuple_getitem", "list_getitem", "RealTupleGetItem"}
)


class Operand(msgspec.Struct, frozen=True):
    """One operand: kind node or parameter with its key in the graph, or kind constant with its
    value.
    """

    kind: str
    key: str = ""
    value: Any = None


class TensorType(msgspec.Struct, frozen=True):
    """Element type (our canonical name, None when unknown), shape and format of one operand or
    output.
    """

    dtype: str | None
    shape: tuple[int, ...] | None
    layout: str | None = None
    ref_key: str | None = None
    in_place: bool = False
    kind: str = "tensor"  # tensor | scalar | tuple | string | other

    @property
    def elements(self) -> int | None:
        """Number of elements, None when the shape is not known."""
        return None if self.shape is None else math.prod(self.shape)


class Frame(msgspec.Struct, frozen=True):
    """One line of a source trace; function is true for the line of a def that encloses the next
    frame.
    """

    path: str
    line: int
    last: int
    code: str
    function: bool = False


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One node of a graph; the trace runs from the outermost frame to the innermost.

    host types are what the user's program has; device types what the kernel really read and wrote
    (None when not said).
    from_forward: the trace is the one of the forward node whose gradient this computes.
    """

    key: str
    op: str
    name: str
    operands: tuple[Operand, ...] = ()
    attrs: dict[str, Any] = {}
    node_attrs: dict[str, Any] = {}
    primal: dict[str, Any] = {}
    host_inputs: tuple[TensorType, ...] = ()
    host_outputs: tuple[TensorType, ...] = ()
    device_inputs: tuple[TensorType, ...] | None = None
    device_outputs: tuple[TensorType, ...] | None = None
    trace: tuple[Frame, ...] = ()
    from_forward: bool = False

    @property
    def backend_cast(self) -> bool:
        """A conversion the back end put in for the kernel before it, with no line of its own."""
        return self.op == "Cast" and self.attrs.get("is_backend_cast") is True


class GraphParameter(msgspec.Struct, frozen=True):
    """A parameter or input of the graph; weight is false for the data the program feeds."""

    key: str
    name: str
    type: TensorType
    weight: bool | None = None


def is_fed(parameter: GraphParameter) -> bool:
    """Whether it is data that the program feeds; by its name where the graph does not say."""
    unknown = parameter.weight is None
    return parameter.name.startswith("inputs") if unknown else not parameter.weight


class Graph(msgspec.Struct, frozen=True):
    """A whole graph; problems are lines for the parts that could not be understood."""

    name: str
    nodes: tuple[Node, ...] = ()
    parameters: tuple[GraphParameter, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def kernels(self) -> tuple[Node, ...]:
        """The nodes that run, in the order of the file."""
        return tuple(node for node in self.nodes if node.op not in PLUMBING)
