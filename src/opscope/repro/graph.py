# SPDX-License-Identifier: Apache-2.0
"""A folder for what `run --check` found a compiler to make wrongly: the part of the graph that
deviates alone, as data, its inputs, and a script that compiles it and compares.

Nothing of the run enters the script's code; names of functions are looked up there among those that
touch only their tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.errors import FormatError, UsageError
from opscope.repro.markdown import code
from opscope.repro.script import template
from opscope.repro.tensorfile import Entry, write_tensors
from opscope.run.dtypes import dtype_of
from opscope.run.keys import keys_at
from opscope.run.query import records_of
from opscope.run.schema import Tensor, ValueRef

if TYPE_CHECKING:
    from opscope.run.protocol import Run
    from opscope.run.schema import Call

GRAPH = "graph.json"
INPUTS = "inputs.safetensors"


class Memory(msgspec.Struct, frozen=True):
    """A flat memory that inputs are views of."""

    dtype: str
    size: int


class Input(msgspec.Struct, frozen=True):
    """One input of a part: strides and offset in elements; trained where a gradient is judged."""

    name: str
    memory: int
    shape: list[int]
    stride: list[int]
    offset: int
    trained: bool = False


class Node(msgspec.Struct, frozen=True):
    """One call of a function or method."""

    name: str
    kind: str
    target: str
    args: list[Any]
    kwargs: dict[str, Any]


class Element(msgspec.Struct, frozen=True):
    """The element that deviated, of the result at this place; numbers as text."""

    place: int
    element: list[int]
    got: str
    expected: str
    tolerance: str


class Window(msgspec.Struct, frozen=True):
    """A part of a graph (record/torch/encoded.py)."""

    backend: str
    memories: list[Memory]
    inputs: list[Input]
    nodes: list[Node]
    outputs: list[str]
    witness: Element


class _Sample(msgspec.Struct, frozen=True):
    window: Window | None = None
    inputs: dict[str, tuple[str, str]] = {}


class Part(msgspec.Struct, frozen=True):
    """A part with its inputs, whose values are read when their turn comes; call is the name of the
    graph's.
    """

    call: str
    window: Window
    inputs: list[Entry]


def part_of(run: Run, call: Call) -> Part:
    """What a check found wrong in a graph's call; UsageError where there is nothing to cut out."""
    for row in records_of(run, "judgements", keys_at([(call.process, call.index)])):
        if row.kind != "compiled-mismatch":
            continue
        try:
            sample = msgspec.json.decode(row.sample or "{}", type=_Sample)
        except msgspec.MsgspecError:
            continue
        window = sample.window
        names = [f"m{number}" for number in range(len(window.memories))] if window else []
        if window is not None and sample.inputs.keys() >= set(names):
            entries = [
                _entry(run, call, name, each, ValueRef(*sample.inputs[name]))
                for name, each in zip(names, window.memories, strict=True)
            ]
            return Part(call.name, window, entries)
    raise UsageError(
        f"{call.name} is a call of level {call.level}: of a graph only what --check found wrong, "
        "with its inputs, can be cut out"
    )


def _entry(run: Run, call: Call, name: str, memory: Memory, value: ValueRef) -> Entry:
    if memory.size < 0:
        raise UsageError(f"{call.name}: {name} has no size that a memory can have")
    row = Tensor(
        process=call.process,
        index=call.index,
        io="input",
        slot=name,
        dtype=memory.dtype,
        shape=(memory.size,),
        stride=(1,),
        offset=0,
        value=value,
    )
    return Entry(
        key=name,
        dtype=dtype_of(memory.dtype),
        shape=(memory.size,),
        load=lambda: run.value(row),
    )


def graph_script() -> str:
    """Source of the script (Python 3.8, torch)."""
    return template("repro_graph.py", "stored")


def write_part(part: Part, directory: Path) -> None:
    """Write the files of a folder."""
    (directory / "repro.py").write_text(graph_script(), encoding="utf-8")
    write_window(part.window, part.inputs, directory)
    (directory / "README.md").write_text(_readme(part), encoding="utf-8")


def write_window(window: Window, inputs: Sequence[Entry], directory: Path) -> None:
    """Write the files of data, over those that are there."""
    (directory / GRAPH).write_bytes(msgspec.json.format(msgspec.json.encode(window)))
    (directory / INPUTS).unlink(missing_ok=True)
    write_tensors(directory / INPUTS, inputs)


def read_window(directory: Path) -> Window:
    """The part in a folder; FormatError for a file that is none."""
    path = directory / GRAPH
    try:
        return msgspec.json.decode(path.read_bytes(), type=Window)
    except OSError as error:
        raise FormatError(path, f"cannot be read ({error.strerror})") from error
    except (msgspec.MsgspecError, RecursionError) as error:
        raise FormatError(path, f"is not a part of a graph: {error}") from error


def _readme(part: Part) -> str:
    window = part.window
    names = ", ".join(code(node.target) for node in window.nodes)
    return (
        f"# {names}, compiled by {code(window.backend)}\n\n"
        f"Compiled alone, they give other results than operator by operator: element "
        f"{window.witness.element} was {code(window.witness.got)}, "
        f"{code(window.witness.expected)} expected.\n\n"
        "    python repro.py          # compiles the part and compares; exit code 1: they differ\n"
        "    python repro.py --code   # a program that shows the same, to paste into an issue\n"
        "    opscope minimize .       # a smaller part that still differs\n"
    )
