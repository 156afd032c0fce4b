# SPDX-License-Identifier: Apache-2.0
"""The events of a dump: operators that graphs were built of, what was executed eagerly, what graphs
computed, and the frames of Python stacks.

Messages and field numbers are those of TensorFlow's debug_event.proto. A file that is torn gives
what stands before the tear.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from opscope.errors import FormatError
from opscope.formats.mindspore.pb import Wire
from opscope.formats.tfdbg.files import KINDS, file_of, records
from opscope.formats.tfdbg.tensors import Kept, integers, kept

_TIME = 1
_METADATA, _SOURCE, _FRAME, _OP, _GRAPH, _EXECUTION, _TRACE = 3, 4, 6, 7, 8, 9, 10
_MOST_TENSORS = 65_536  # of one execution


class Op(msgspec.Struct, frozen=True):
    """An operator of a graph: its inputs as "name:slot", ids of its frames, outermost first."""

    type: str = ""
    name: str = ""
    graph: str = ""
    inputs: tuple[str, ...] = ()
    outputs: int = 0
    stack: tuple[str, ...] = ()


class Graph(msgspec.Struct, frozen=True):
    """A graph and the graph it was built in; that of eager execution has no name."""

    id: str = ""
    name: str = ""
    outer: str = ""


class Execution(msgspec.Struct, frozen=True):
    """An operator, or a function with its graph, that was executed eagerly."""

    time: float
    type: str
    graph: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    tensors: tuple[Kept | None, ...]
    stack: tuple[str, ...]


class Trace(msgspec.Struct, frozen=True):
    """One output that an operator of a graph computed."""

    time: float
    graph: str
    op: str
    slot: int
    tensor: Kept | None
    device: str


class Events(msgspec.Struct):
    """All events of a set of files; ops by graph and name in the order they were built."""

    version: str = ""
    run: str = ""
    ops: dict[str, dict[str, Op]] = {}
    graphs: dict[str, Graph] = {}
    executions: list[Execution] = []
    traces: list[Trace] = []
    frames: dict[str, tuple[int, int, str]] = {}
    sources: list[str] = []
    problems: list[str] = []

    def stack(self, ids: tuple[str, ...]) -> tuple[str, ...]:
        """Frames as a run has them, innermost first."""
        frames = []
        for frame in reversed(ids):
            file, line, function = self.frames.get(frame, (-1, 0, ""))
            if 0 <= file < len(self.sources):
                frames.append(f"{self.sources[file]}:{line} in {function}")
        return tuple(frames)


def read_events(prefix: Path) -> Events:
    """The events of one set of files; what cannot be read is a problem each."""
    events = Events()
    for kind in ("metadata", *KINDS):
        path = file_of(prefix, kind)
        try:
            for offset, data in records(path):
                _take(Wire(data, str(path), offset), events)
        except FormatError as error:
            events.problems.append(str(error))
    return events


def _take(message: Wire, events: Events) -> None:
    """One event."""
    time = 0.0
    for number, kind, value in message.fields():
        if number == _TIME and kind == 1:
            time = struct.unpack("<d", value.data)[0]
        elif kind == 2 and number in _READERS:
            _READERS[number](value, time, events)


def _texts(message: Wire) -> dict[int, str]:
    return {number: value.text for number, kind, value in message.fields() if kind == 2}


def _all(message: Wire, wanted: int) -> Iterator[Any]:
    return (value for number, _, value in message.fields() if number == wanted)


def _messages(message: Wire, wanted: int) -> Iterator[Wire]:
    return (each for each in _all(message, wanted) if isinstance(each, Wire))


def _number(message: Wire, wanted: int) -> int:
    return next((value for value in _all(message, wanted) if isinstance(value, int)), 0)


def _numbers(message: Wire, wanted: int) -> tuple[int, ...]:
    numbers: list[int] = []
    for value in _all(message, wanted):
        numbers += [value] if isinstance(value, int) else integers(value)
    return tuple(numbers)


def _stack(message: Wire, wanted: int) -> tuple[str, ...]:
    location = next(_messages(message, wanted), None)
    if location is None:
        return ()
    return tuple(each.text for each in _messages(location, 2))


def _metadata(message: Wire, _: float, events: Events) -> None:
    texts = _texts(message)
    events.version, events.run = texts.get(1, ""), texts.get(3, "")


def _source(message: Wire, _: float, events: Events) -> None:
    first = next(_messages(message, 1), None)
    events.sources.append("" if first is None else first.text)


def _frame(message: Wire, _: float, events: Events) -> None:
    location = next(_messages(message, 2), None)
    if location is not None:
        function = _texts(location).get(4, "")
        events.frames[_texts(message).get(1, "")] = (
            _number(location, 1),
            _number(location, 2),
            function,
        )


def _op(message: Wire, _: float, events: Events) -> None:
    texts = _texts(message)
    inputs = (each.text for each in _messages(message, 6))
    op = Op(
        type=texts.get(1, ""),
        name=texts.get(2, ""),
        graph=texts.get(4, ""),
        inputs=tuple(inputs),
        outputs=_number(message, 7),
        stack=_stack(message, 8),
    )
    events.ops.setdefault(op.graph, {})[op.name] = op


def _graph(message: Wire, _: float, events: Events) -> None:
    texts = _texts(message)
    graph = Graph(texts.get(1, ""), texts.get(2, ""), texts.get(6, ""))
    events.graphs[graph.id] = graph


def _execution(message: Wire, time: float, events: Events) -> None:
    texts, mode = _texts(message), _number(message, 6)
    protos = list(_messages(message, 7))
    if len(protos) > _MOST_TENSORS:
        raise message.fail(0, f"an execution of {len(protos)} tensors")
    events.executions.append(
        Execution(
            time=time,
            type=texts.get(1, ""),
            graph=texts.get(3, ""),
            inputs=_numbers(message, 4),
            outputs=_numbers(message, 5),
            tensors=tuple(kept(each, mode) for each in protos),
            stack=_stack(message, 8),
        )
    )


def _trace(message: Wire, time: float, events: Events) -> None:
    texts, mode = _texts(message), _number(message, 4)
    proto = next(_messages(message, 5), None)
    events.traces.append(
        Trace(
            time=time,
            graph=texts.get(1, ""),
            op=texts.get(2, ""),
            slot=_number(message, 3),
            tensor=None if proto is None else kept(proto, mode),
            device=texts.get(6, ""),
        )
    )


_READERS: dict[int, Callable[[Wire, float, Events], None]] = {
    _METADATA: _metadata,
    _SOURCE: _source,
    _FRAME: _frame,
    _OP: _op,
    _GRAPH: _graph,
    _EXECUTION: _execution,
    _TRACE: _trace,
}
