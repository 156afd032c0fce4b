# SPDX-License-Identifier: Apache-2.0
"""What the graphs of a dump say of their operators before any is executed: phase, module, which
forward operator a gradient is of, and what merely hands on what it was given.

An operator is of the backward pass where a tape or the gradient of a function made it, of an
optimizer where that applied gradients, assigns what comes of a gradient, or lies between the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property

from opscope.formats.tfdbg.events import Events, Op
from opscope.operators.catalogue import traits_of

ALIASES = frozenset({"Identity", "IdentityN"})  # their results are what they were given
READS = frozenset({"ReadVariableOp"})
GIVEN = frozenset({"Placeholder", "PlaceholderWithDefault"})
CONSTANTS = frozenset({"Const"})
TAKEN = frozenset({"OptionalGetValue"})
PIPELINE = "Dataset_"  # graphs of tf.data
FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
TAPE = "gradient_tape/"
_ASSIGNS = re.compile(r"(?:Assign\w*|Resource(?:Sparse)?Apply\w+)")
_OF_VARIABLES = re.compile(
    r"ReadVariableOp|Assign\w*VariableOp|Resource\w+|VarIsInitializedOp|VariableShape"
)
_APPLIES = re.compile(r"Resource(?:Sparse)?Apply\w+")
_GRADIENT_GRAPH = re.compile(r"__backward_.*|.*_grad_\d+")
_OF_A_GRADIENT = re.compile(r"(?:.*/)?gradients/(.+)_grad/[^/]+(?:/.*)?")
_TAPE_FILE = "tensorflow/python/eager/backprop.py:"
_OPTIMIZER_FILE = re.compile(r"/keras/(?:src/)?optimizers/|/tensorflow/python/training/")
_APPLYING = frozenset({"apply", "apply_gradients"})
_DATASET = ("Dataset", "DatasetV2", "DatasetV3", "DatasetV4")
_PARALLEL = re.compile(r"Parallel|MapAndBatch|LegacyParallel")
_DEBUGGER = re.compile(r"/tensorflow/python/(?:debug/|framework/op_callbacks\.py)")


def is_assignment(op: Op) -> bool:
    """Whether an operator writes to a variable and gives nothing."""
    return op.outputs == 0 and _ASSIGNS.fullmatch(op.type) is not None


def assigns(kind: str) -> bool:
    """Whether operators of a type write to variables."""
    return _ASSIGNS.fullmatch(kind) is not None


def _variables_of(kind: str) -> int:
    """How many of its first inputs are variables."""
    return len(traits_of(f"tf::{kind}").writes.split(","))


def is_view(kind: str) -> bool:
    """Whether operators of a type give the elements they read, in their order, where they lie."""
    known = traits_of(f"tf::{kind}")
    return known.view and known.in_order


def is_parallel(kind: str) -> bool:
    """Whether an operator makes a pipeline that computes several elements at a time."""
    return kind.endswith(_DATASET) and _PARALLEL.match(kind) is not None


def own_frames(frames: tuple[str, ...]) -> tuple[str, ...]:
    """Frames, innermost first, without those of the debugger itself."""
    start = next((at for at, frame in enumerate(frames) if not _DEBUGGER.search(frame)), 0)
    return frames[start:]


def phase_of(frames: tuple[str, ...], kind: str, name: str = "", graph: str = "") -> str:
    """The phase that an operator's stack, type and names tell."""
    if _APPLIES.fullmatch(kind) or _updates(frames):
        return OPTIMIZER
    if name.startswith(TAPE) or _GRADIENT_GRAPH.fullmatch(graph) or tape_frame(frames) is not None:
        return BACKWARD
    return FORWARD


def _updates(frames: tuple[str, ...]) -> bool:
    """Whether an optimizer applied gradients, and did not merely make what it keeps."""
    functions = [frame.rpartition(" in ")[2] for frame in frames if _OPTIMIZER_FILE.search(frame)]
    return bool(_APPLYING & set(functions)) and "build" not in functions


def tape_frame(frames: tuple[str, ...]) -> int | None:
    """The place of the frame that asks a tape for gradients; None where there is none."""
    return next(
        (
            at
            for at, frame in enumerate(frames)
            if _TAPE_FILE in frame and frame.endswith((" in gradient", " in jacobian"))
        ),
        None,
    )


class Static:
    """The operators of one graph, in the order they were built, with what is known of them."""

    def __init__(self, events: Events, graph: str) -> None:
        self.ops: Mapping[str, Op] = events.ops.get(graph, {})
        self.place = {name: number for number, name in enumerate(self.ops)}
        self.name = events.graphs[graph].name if graph in events.graphs else ""
        self._events = events

    @cached_property
    def assignments(self) -> tuple[Op, ...]:
        """Operators that write to variables and give nothing, which nobody traces."""
        return tuple(op for op in self.ops.values() if is_assignment(op))

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """Inputs "argument:0" that are variables, in the order of the graph."""
        named = {
            name
            for op in self.ops.values()
            if _OF_VARIABLES.fullmatch(op.type)
            for name in op.inputs[: _variables_of(op.type)]
        }
        return tuple(
            name
            for op in self.ops.values()
            if op.type in GIVEN and (name := f"{op.name}:0") in named
        )

    @cached_property
    def roles(self) -> dict[str, str]:
        """What each variable is that the passes read: a parameter, or a buffer where they write to
        it too, as to moving averages. Moments and counters of an optimizer are neither.
        """
        read: set[str] = set()
        written: set[str] = set()
        for op in self.ops.values():
            if not _OF_VARIABLES.fullmatch(op.type) or self.phases[op.name] == OPTIMIZER:
                continue
            (written if is_assignment(op) else read).update(op.inputs[: _variables_of(op.type)])
        return {name: "buffer" if name in written else "parameter" for name in read}

    @cached_property
    def arguments(self) -> list[str]:
        """Arguments that are no variables, in the order of the graph."""
        named = set(self.variables)
        return [
            op.name for op in self.ops.values() if op.type in GIVEN and f"{op.name}:0" not in named
        ]

    @cached_property
    def frames(self) -> dict[str, tuple[str, ...]]:
        """The stack of each operator, innermost first."""
        return {name: own_frames(self._events.stack(op.stack)) for name, op in self.ops.items()}

    @cached_property
    def phases(self) -> dict[str, str]:
        """The phase of each operator."""
        phases = {
            name: phase_of(self.frames[name], op.type, name, self.name)
            for name, op in self.ops.items()
        }
        after = self._reached(
            [name for name, phase in phases.items() if phase == BACKWARD], self._readers
        )
        written = [op.name for op in self.assignments if op.name in after]
        before = self._reached(written, self._read)
        phases |= {name: OPTIMIZER for name in after & before if phases[name] == FORWARD}
        return phases

    def _reached(self, start: Iterable[str], edges: Mapping[str, list[str]]) -> set[str]:
        reached, left = set(start), list(start)
        while left:
            for name in edges.get(left.pop(), ()):
                if name not in reached:
                    reached.add(name)
                    left.append(name)
        return reached

    @cached_property
    def _read(self) -> dict[str, list[str]]:
        return {
            name: [given for each in op.inputs if (given := producer(each)[0]) in self.ops]
            for name, op in self.ops.items()
        }

    @cached_property
    def _readers(self) -> dict[str, list[str]]:
        readers: dict[str, list[str]] = {}
        for name, given in self._read.items():
            for each in given:
                readers.setdefault(each, []).append(name)
        return readers

    def forward_of(self, op: Op) -> str | None:
        """The name of the forward operator whose gradient an operator computes: the one it is named
        after, the one of its type that it reads from, or the only one of its scope that read what
        it reads.
        """
        named_after = _OF_A_GRADIENT.fullmatch(op.name)
        if named_after is not None:
            return named_after[1]
        path = op.name.removeprefix(TAPE)
        parts = path.split("/")
        for length in range(len(parts) - 1, 0, -1):
            above = "/".join(parts[:length])
            if above in self.ops:
                return above
        if not op.name.startswith(TAPE):
            return None
        scope = "/".join(parts[:-1])
        alike = [
            name
            for each in op.inputs
            for name in (producer(each)[0], *self._readers.get(producer(each)[0], ()))
            if name in self.ops
            and self.phases[name] == FORWARD
            and name.rpartition("/")[0] == scope
        ]
        of_type = [name for name in alike if op.type == f"{self.ops[name].type}Grad"]
        chosen = dict.fromkeys(of_type or self._that_read(op, alike))
        return next(iter(chosen)) if len(chosen) == 1 else None

    def _that_read(self, op: Op, names: list[str]) -> list[str]:
        given = set(op.inputs)
        return [name for name in names if given & set(self.ops[name].inputs)]

    def module_of(self, name: str) -> str:
        """The module that an operator's name says: its scopes, up to the first that is an operator
        itself.
        """
        parts = name.removeprefix(TAPE).split("/")[:-1]
        for length in range(1, len(parts) + 1):
            if "/".join(parts[:length]) in self.ops:
                return ".".join(parts[: length - 1])
        return ".".join(parts)


def producer(name: str) -> tuple[str, int]:
    """The operator and slot of an input that is written "name:slot"."""
    bare, _, slot = name.rpartition(":")
    return (bare, int(slot)) if bare and slot.isdigit() and len(slot) < 9 else (name, 0)
