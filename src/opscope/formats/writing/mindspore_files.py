# SPDX-License-Identifier: Apache-2.0
"""Writes a run in MindSpore's directory layout, for tools that read MindSpore's dumps.

    rank_{r}/{net}/{graph}/{step}/{op}.{name}.0.0.{timestamp}.{input|output}.{i}.DefaultFormat.{Type}.npy,
    statistic.csv,
                                  {op}.{name}.json (arguments), Parameter.{name}.…npy, mapping.csv
                                  for names over 255 bytes
    rank_{r}/{net}/{graph}/constants/Parameter.data-{id}.…npy
    rank_{r}/graphs/*.ir, rank_{r}/execution_order/*.csv, rank_{r}/.dump_metadata/*.json

Kernels are the calls of the finest level in the run; the other levels have no place in this layout.
Steps whose calls and edges are the same share a graph. bfloat16 is cast to float32, as MindSpore
does. Slots that are no numbers are counted.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from threading import Lock
from typing import Any

from opscope.arrays import Array
from opscope.formats.cann.names import stored_name
from opscope.formats.mindspore.names import flat
from opscope.formats.writing.array_files import wide, write_npy
from opscope.formats.writing.call_arguments import argument_tree
from opscope.formats.writing.mindspore_graph import GraphText, graph_text
from opscope.run.dtypes import dtype_of, dtype_of_numpy
from opscope.run.schema import Call, Stack, Tensor, ValueRef
from opscope.version import VERSION

_LEVELS = ("operator", "api", "module")
_EPOCH = 1_700_000_000_000_000  # microseconds; the order within a step is what matters
_LIMIT = 255
_TYPES = frozenset(
    {
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
        "bfloat16",
    }
)
_COLUMNS = (
    "Op Type",
    "Op Name",
    "Task ID",
    "Stream ID",
    "Timestamp",
    "IO",
    "Slot",
    "Data Size",
    "Data Type",
    "Shape",
    "Max Value",
    "Min Value",
    "Avg Value",
    "Count",
    "Negative Zero Count",
    "Positive Zero Count",
    "NaN Count",
    "Negative Inf Count",
    "Positive Inf Count",
    "Zero Count",
    "L2Norm Value",
)
_STATISTICS = (
    "max",
    "min",
    "mean",
    "size",
    "neg",
    "pos",
    "nan",
    "neg_inf",
    "pos_inf",
    "zero",
    "l2norm",
)


def op_of(call: Call) -> str:
    """An operator as it stands in file names and graphs."""
    return flat(call.op).replace(":", "_").replace("<", "_").replace(">", "_") or "Unknown"


def kernel_level(levels: Iterable[str]) -> str | None:
    """The finest level among these."""
    known = set(levels)
    return next((level for level in _LEVELS if level in known), None)


class MindSporeFiles:
    """Writes files as calls come; what needs the whole run (graphs, statistics, order) is written
    at the end.
    """

    def __init__(
        self, out: Path, *, net: str, level: str | None, graphs: dict[tuple[int, int], int]
    ) -> None:
        self._out, self._net, self._level, self._graphs = out, net, level, graphs
        self._lock = Lock()
        self._mapping: dict[Path, list[tuple[str, str]]] = defaultdict(list)
        self._times: dict[tuple[int, int, str, str], int] = {}
        self._constants: dict[tuple[int, int, int | None], ValueRef] = {}
        self._parameters: dict[tuple[int, int, str], None] = {}

    def folder(self, call: Call) -> str:
        """Data folder of a call's step, relative to the output."""
        return (
            f"rank_{call.rank}/{self._net}/{self._graphs.get((call.rank, call.step), 0)}"
            f"/{call.step}"
        )

    def write(self, call: Call, tensor: Tensor, values: Array) -> ValueRef | None:
        """One tensor's .npy; tensors of other levels are not kernels' and are not written."""
        if call.level != self._level:
            return None
        kind = dtype_of_numpy(values.dtype)
        number = self._number(call, tensor)
        time = self.time(call, tensor.io, number)
        name = (
            f"{op_of(call)}.{flat(call.name)}.{call.task or 0}.{call.stream or 0}.{time}"
            f".{tensor.io}.{number}"
        )
        written = self._save(
            self.folder(call),
            f"{name}.DefaultFormat.{kind.mindspore or kind.name.capitalize()}.npy",
            values,
        )
        self._keep_shared(call, tensor, values)
        return written

    def time(self, call: Call, io: str, number: int) -> int:
        """The timestamp of one tensor: calls in order, inputs before outputs."""
        return (
            _EPOCH
            + call.step * 10_000_000_000
            + call.index * 1000
            + (500 if io == "output" else 0)
            + min(number, 499)
        )

    def _number(self, call: Call, tensor: Tensor) -> int:
        """The number of a slot; one that is no number gets the next after 300."""
        if tensor.slot.isdigit() and len(tensor.slot) < 3:
            return int(tensor.slot)
        with self._lock:
            key = (call.process, call.index, tensor.io, tensor.slot)
            if key not in self._times:
                others = sum(1 for known in self._times if known[:3] == key[:3])
                self._times[key] = 300 + others
            return self._times[key]

    def _save(self, folder: str, name: str, values: Array) -> ValueRef:
        path = self._out / folder
        path.mkdir(parents=True, exist_ok=True)
        file = name
        if len(name.encode()) > _LIMIT:
            file = f"{stored_name(name)}.npy"
            with self._lock:
                self._mapping[path].append((file.removesuffix(".npy"), name))
        write_npy(path / file, wide(values))
        return ValueRef(f"{folder}/{file}", "")

    def _keep_shared(self, call: Call, tensor: Tensor, values: Array) -> None:
        """Parameters and constants have files of their own, once a step or once a graph."""
        graph = self._graphs.get((call.rank, call.step), 0)
        kind = dtype_of_numpy(values.dtype)
        if tensor.role == "constant":
            key = (call.rank, graph, tensor.digest)
            with self._lock:
                known = key in self._constants
                number = len(self._constants)
                if not known:
                    self._constants[key] = ValueRef("", "")
            if not known:
                folder = f"rank_{call.rank}/{self._net}/{graph}/constants"
                self._save(
                    folder,
                    f"Parameter.data-{number}.0.0.{_EPOCH}.output.0.DefaultFormat.npy",
                    values,
                )
        elif tensor.tensor_name is not None and tensor.role in {
            "parameter",
            "buffer",
            "input data",
        }:
            own = (call.rank, call.step, tensor.tensor_name)
            with self._lock:
                known = own in self._parameters
                self._parameters[own] = None
            if not known:
                name = (
                    f"Parameter.{flat(tensor.tensor_name)}"
                    f".0.0.{self.time(call, tensor.io, 499)}.output.0.DefaultFormat"
                )
                self._save(
                    self.folder(call),
                    f"{name}.{kind.mindspore or kind.name.capitalize()}.npy",
                    values,
                )

    def close(self) -> None:
        """Write the mapping.csv files."""
        for folder, pairs in self._mapping.items():
            with (folder / "mapping.csv").open("w", encoding="utf-8", newline="") as stream:
                csv.writer(stream, lineterminator="\n").writerows(pairs)

    def finish(
        self,
        calls: list[tuple[Call, list[Tensor]]],
        texts: dict[tuple[int, int], GraphText],
        about: dict[str, Any],
    ) -> None:
        """Write statistics, arguments, graphs, execution order and metadata."""
        kernels = [(call, rows) for call, rows in calls if call.level == self._level]
        by_folder: dict[str, list[tuple[Call, list[Tensor]]]] = defaultdict(list)
        for call, rows in kernels:
            by_folder[self.folder(call)].append((call, rows))
        for folder, part in by_folder.items():
            (self._out / folder).mkdir(parents=True, exist_ok=True)
            self._statistics(self._out / folder, part)
            for call, _ in part:
                self._arguments(self._out / folder, call)
        for (rank, graph), text in texts.items():
            self._graph(rank, graph, text)
        for rank in {call.rank for call, _ in calls}:
            self._metadata(
                self._out / f"rank_{rank}" / ".dump_metadata",
                sorted({call.step for call, _ in kernels if call.rank == rank}),
                about,
            )

    def _statistics(self, folder: Path, part: list[tuple[Call, list[Tensor]]]) -> None:
        with (folder / "statistic.csv").open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(_COLUMNS)
            for call, rows in part:
                for row in rows:
                    if row.size is not None and row.shape is not None:
                        writer.writerow(self._line(call, row))

    def _line(self, call: Call, row: Tensor) -> list[Any]:
        number = self._number(call, row)
        shape = f"({','.join(map(str, row.shape or ()))})"
        kind = dtype_of(row.dtype) if row.dtype in _TYPES else None
        size = kind.nbytes(row.size or 0) if kind is not None else ""
        head = [
            op_of(call),
            call.name,
            call.task or 0,
            call.stream or 0,
            self.time(call, row.io, number),
            row.io,
            number,
            size,
            row.dtype,
            shape,
        ]
        return head + [_printed(row, name) for name in _STATISTICS]

    def _arguments(self, folder: Path, call: Call) -> None:
        """Arguments of a kernel as text, the way MindSpore saves them."""
        named = argument_tree(call.args).get("kwargs")
        if not isinstance(named, dict) or not named:
            return
        name = f"{op_of(call)}.{flat(call.name)}.json"
        if len(name.encode()) <= _LIMIT:
            text = json.dumps(
                {
                    key: value if isinstance(value, str) else json.dumps(value)
                    for key, value in named.items()
                },
                indent=4,
            )
            (folder / name).write_text(text, encoding="utf-8")

    def _graph(self, rank: int, graph: int, text: GraphText) -> None:
        graphs, order = (
            self._out / f"rank_{rank}" / "graphs",
            self._out / f"rank_{rank}" / "execution_order",
        )
        graphs.mkdir(parents=True, exist_ok=True)
        order.mkdir(parents=True, exist_ok=True)
        (graphs / f"ms_output_trace_code_graph_{graph}.ir").write_text(text.text, encoding="utf-8")
        names = "\n".join(("NodeExecutionOrder-FullNameWithScope", *text.names))
        (order / f"ms_execution_order_graph_{graph}.csv").write_text(names + "\n", encoding="utf-8")
        steps = sorted(
            step for (own, step), number in self._graphs.items() if own == rank and number == graph
        )
        (order / f"ms_global_execution_order_graph_{graph}.csv").write_text(
            "".join(f"{step}\n" for step in steps), encoding="utf-8"
        )

    def _metadata(self, folder: Path, steps: list[int], about: dict[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        target = about.get("device_target")
        config = {
            "device_target": target if isinstance(target, str) else "CPU",
            "ms_version": str(about.get("ms_version") or ""),
        }
        (folder / "config.json").write_text(
            json.dumps(config | {"converted_by": f"opscope {VERSION}"}), encoding="utf-8"
        )
        common = {
            "dump_mode": 0,
            "path": "",
            "net_name": self._net,
            "iteration": "|".join(map(str, steps)) or "all",
            "saved_data": "full",
            "input_output": 0,
            "kernels": [],
            "support_device": [0, 1, 2, 3, 4, 5, 6, 7],
            "op_debug_mode": 0,
        }
        settings = {
            "common_dump_settings": common,
            "e2e_dump_settings": {"enable": True, "trans_flag": True, "save_kernel_args": True},
        }
        (folder / "data_dump.json").write_text(json.dumps(settings), encoding="utf-8")


def _printed(row: Tensor, name: str) -> Any:
    """A statistic as MindSpore's own would be: extremes over all elements, so that NaN and
    infinities show.
    """
    value = getattr(row, name)
    if name in {"max", "min", "mean", "l2norm"} and row.nan:
        return "nan"
    if (name in {"max", "l2norm"} and row.pos_inf) or (name == "l2norm" and row.neg_inf):
        return "inf"
    if name == "min" and row.neg_inf:
        return "-inf"
    if name == "mean" and (row.pos_inf or row.neg_inf):
        return "nan" if row.pos_inf and row.neg_inf else "inf" if row.pos_inf else "-inf"
    if value is not None and name in {
        "neg",
        "pos",
    }:  # theirs are below and above zero, infinite ones too
        return value + ((row.pos_inf if name == "pos" else row.neg_inf) or 0)
    if value is None and name in {"max", "min"} and (row.pos_inf or row.neg_inf):
        return "inf" if row.pos_inf else "-inf"
    return "" if value is None else value


def plan_graphs(
    calls: list[tuple[Call, list[Tensor]]], stacks: dict[tuple[int, int], Stack], level: str | None
) -> tuple[dict[tuple[int, int], int], dict[tuple[int, int], GraphText]]:
    """Graph number of each (rank, step), and the text of each (rank, graph); steps of the same text
    share one.
    """
    steps: dict[tuple[int, int], list[tuple[Call, list[Tensor]]]] = defaultdict(list)
    for call, rows in calls:
        if call.level == level:
            steps[call.rank, call.step].append((call, rows))
    numbers: dict[tuple[int, int], int] = {}
    texts: dict[tuple[int, int], GraphText] = {}
    known: dict[tuple[int, str], int] = {}
    for rank, step in sorted(steps):
        text = graph_text(steps[rank, step], stacks, op_of)
        number = known.setdefault((rank, text.text), sum(1 for own, _ in known if own == rank))
        numbers[rank, step] = number
        texts.setdefault((rank, number), text)
    return numbers, texts
