# SPDX-License-Identifier: Apache-2.0
"""Text that ONNX Runtime prints of its nodes when built with
onnxruntime_DEBUG_NODE_INPUTS_OUTPUTS=1, kept in a file.

    -----------
    MatMul node: /fc/MatMul
    Input 0 Name: x
     Shape: {4,16}
    0.1, nan, ...                      with ORT_DEBUG_NODE_IO_DUMP_INPUT_DATA=1; cut down to the
                                       edges above 500 elements
    Min=-1.5,Max=2,Inf=1,NaN=3,Zero=1  with ORT_DEBUG_NODE_IO_DUMP_STATISTICS_DATA=1; Inf counts
                                       both signs
    -----------
    Output 0 Name: y

Names of tensors are unique in a graph, so they are the edges. The text says no element type and
rounds to eight digits: rows have dtype "unknown" and no values. Counts of a NaN or an infinity are
exact where the elements are all printed or Inf and NaN are; extremes are as printed, and left out
where a NaN or an infinity hides the finite ones. Read from the source of ONNX Runtime 1.24.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.formats.extremes import number
from opscope.formats.foreign import UNKNOWN
from opscope.formats.logs import find_logs, read_logs, take_lines
from opscope.formats.registry import Format
from opscope.formats.run_builder import RunBuilder
from opscope.run.memory import MemoryRun
from opscope.run.protocol import RunInfo
from opscope.run.schema import Call, Tensor

if TYPE_CHECKING:
    from opscope.run.protocol import Run

_LOOKS = re.compile(rb"^-{11}\r?\n\w+ node: [^\n]*\r?\n(?:Input|-{11})", re.MULTILINE)
_NODE = re.compile(r"(\w{1,200}) node: (.{0,4000})")
_SIDE = re.compile(r"(Input|Output) (\d{1,6}) Name: (.{0,4000})")
_SHAPE = re.compile(r" Shape: \{([\d,]{0,400})\}")
_STATISTICS = re.compile(r"Min=[^,]+,Max=[^,]+(?:,\w+=\d{1,18})*")
_ELEMENT = re.compile(r"-?(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?|inf|nan(?:\(ind\))?)")
_RULE = "-----------"


class _Seen(msgspec.Struct):
    """What the lines of a tensor say; printed: elements counted, None once some were left out."""

    shape: tuple[int, ...] | None = None
    statistics: dict[str, str] = {}
    printed: dict[str, int] | None = msgspec.field(
        default_factory=lambda: dict.fromkeys(("all", "nan", "pos_inf", "neg_inf"), 0)
    )


def detect(path: Path) -> bool:
    """Whether a file, or one in a folder, holds such a text."""
    return bool(find_logs(path, _looks_right))


def _looks_right(head: bytes) -> bool:
    return _LOOKS.search(head) is not None


def open_text(path: Path) -> Run:
    """The texts as a run, one process for each file; FormatError when none can be read."""
    builder = _Builder()
    read_logs(path, _looks_right, builder, what="nodes of ONNX Runtime")
    return MemoryRun(
        RunInfo(path=str(path), format="onnxruntime"),
        builder.processes,
        builder.calls,
        builder.tensors,
        problems=builder.problems,
    )


FORMAT = Format("onnxruntime", detect, open_text)


class _Builder(RunBuilder):
    def __init__(self) -> None:
        super().__init__()
        self.tensors: list[Tensor] = []
        self._next = 0

    def add(self, path: Path, rank: int) -> None:
        """One file. A new step begins where its first node comes again."""
        self.start_process(str(path), rank)
        self._step = 0
        self._call: Call | None = None
        self._first: str | None = None
        self._versions: dict[str, int] = {}
        self._row: tuple[Tensor, _Seen] | None = None
        take_lines(path, self._line, self.problems)
        self._finish_row()

    def _line(self, line: str) -> None:
        if line == _RULE or (node := _NODE.fullmatch(line)) is not None:
            self._finish_row()
            if line != _RULE and node is not None:
                self._node(node[1], node[2])
        elif (side := _SIDE.fullmatch(line)) is not None:
            self._finish_row()
            if self._call is not None:
                io = "input" if side[1] == "Input" else "output"
                self._start_row(self._call, io, side[2], side[3])
        elif self._row is not None:
            _take(self._row[1], line)

    def _node(self, op: str, name: str) -> None:
        known = name or op
        if self._first is None:
            self._first = known
        elif known == self._first:
            self._step += 1
            self._versions.clear()  # what no node makes is fed anew
        self._call = self.add_call(
            step=self._step, level="operator", phase="forward", op=op, name=known
        )

    def _start_row(self, call: Call, io: str, slot: str, name: str) -> None:
        if io == "output" or name not in self._versions:
            self._next += 1
            self._versions[name] = self._next
        row = Tensor(
            process=call.process,
            index=call.index,
            io=io,
            slot=slot,
            version=self._versions[name],
            dtype=UNKNOWN,
            tensor_name=name,
        )
        self._row = (row, _Seen())

    def _finish_row(self) -> None:
        if self._row is not None:
            row, seen = self._row
            self.tensors.append(msgspec.structs.replace(row, **_columns(seen)))
            self._row = None


def _take(seen: _Seen, line: str) -> None:
    """One line about a tensor."""
    if (shape := _SHAPE.fullmatch(line)) is not None:
        sizes = [part for part in shape[1].split(",") if part]
        if len(sizes) <= 64 and all(len(size) < 19 for size in sizes):
            seen.shape = tuple(int(size) for size in sizes)
    elif _STATISTICS.fullmatch(line):
        seen.statistics = dict(part.split("=", 1) for part in line.split(","))
    elif "..." in line:
        seen.printed = None
    elif line and seen.printed is not None:
        _count(seen.printed, line)


def _count(printed: dict[str, int], line: str) -> None:
    elements = line.split(", ")
    if not all(_ELEMENT.fullmatch(element) for element in elements):
        return
    printed["all"] += len(elements)
    printed["nan"] += sum("nan" in element for element in elements)
    printed["pos_inf"] += elements.count("inf")
    printed["neg_inf"] += elements.count("-inf")


def _columns(seen: _Seen) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "shape": seen.shape,
        **(_told(seen.statistics) if seen.statistics else {}),
    }
    if seen.shape is not None:
        columns["size"] = math.prod(seen.shape)
        if seen.printed is not None and seen.printed["all"] == columns["size"]:
            columns |= {name: count for name, count in seen.printed.items() if name != "all"}
    return columns


def _told(statistics: dict[str, str]) -> dict[str, Any]:
    """Columns from Min, Max, Inf and NaN. The first element is the first extreme: a NaN there hides
    all others, elsewhere it is skipped.
    """
    smallest, largest = number(statistics.get("Min")), number(statistics.get("Max"))
    infinite, nan = int(statistics.get("Inf", 0)), int(statistics.get("NaN", 0))
    columns: dict[str, Any] = {"nan": nan}
    if infinite == 0:
        columns |= {"pos_inf": 0, "neg_inf": 0}
    elif (
        largest == math.inf
        and smallest != -math.inf
        and smallest is not None
        and not math.isnan(smallest)
    ):
        columns |= {"pos_inf": infinite, "neg_inf": 0}
    elif (
        smallest == -math.inf
        and largest != math.inf
        and largest is not None
        and not math.isnan(largest)
    ):
        columns |= {"pos_inf": 0, "neg_inf": infinite}
    else:
        columns |= {
            "pos_inf": 1 if largest == math.inf else None,
            "neg_inf": 1 if smallest == -math.inf else None,
        }
    for name, value in (("min", smallest), ("max", largest)):
        if value is not None and math.isfinite(value):
            columns[name] = value
    return columns
