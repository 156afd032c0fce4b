# SPDX-License-Identifier: Apache-2.0
"""A recording in the tree of the tool whose settings asked for it: `opscope run --layout
mindspore|acl|msprobe`.

The writers of `opscope convert` make the tree; here stands what the settings say of it: which
calls, whole tensors or statistics, which statistics, the ends of each tensor only, overflow files.
"""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.arrays import Array
from opscope.formats import opdebug
from opscope.formats.convert import convert_run
from opscope.formats.manifest import NAME
from opscope.formats.settings.mindspore import DEFAULT_STATISTICS
from opscope.formats.settings.recording import Export
from opscope.formats.writing.engine import Written
from opscope.formats.writing.job import Job
from opscope.run.memory import MemoryRun
from opscope.run.query import calls as calls_of
from opscope.run.query import records, tensors_of
from opscope.run.schema import Call, Tensor

if TYPE_CHECKING:
    from opscope.run.protocol import Run

KINDS = {"mindspore": "mindspore", "acl": "cann", "msprobe": "msprobe"}
# Column of statistic.csv -> its name in statistic_category, in the order of the file.
COLUMNS = {
    "Max Value": "max",
    "Min Value": "min",
    "Avg Value": "avg",
    "Count": "count",
    "Negative Zero Count": "negative zero count",
    "Positive Zero Count": "positive zero count",
    "NaN Count": "nan count",
    "Negative Inf Count": "negative inf count",
    "Positive Inf Count": "positive inf count",
    "Zero Count": "zero count",
    "MD5 Value": "md5",
    "L2Norm Value": "l2norm",
}
FIXED = 10  # columns before the statistics: Op Type to Shape
ACL_HEADER = (
    "Input/Output",
    "Index",
    "Data Size",
    "Data Type",
    "Format",
    "Shape",
    "Max Value",
    "Min Value",
    "Avg Value",
    "Count",
    "Nan Count",
    "Negative Inf Count",
    "Positive Inf Count",
)
Key = tuple[int, int, str, str]


def write_tool_tree(run: Run, tool: str, export: Export, out: Path) -> Written:
    """Write a run as this tool would have dumped it; out must be new or empty.

    mindspore: the tree of synchronous dump, or of asynchronous dump with .npy or CANN dump files,
    as the settings chose. acl: CANN dump files, statistics as one csv for each operator. msprobe:
    dump.json and what belongs to it. Calls without a value stay in tables and graphs. Whatever
    could not be written is a line in the answer's failures.
    """
    view = _View(run, export)
    kind = KINDS[tool]
    if (
        tool == "mindspore"
        and not export.synchronous
        and export.file_format == "bin"
        and export.data == "tensor"
    ):
        kind = "cann"
    written = convert_run(
        view.run, Job(out=out, kind=kind, net=safe_name(export.net_name)), _nobody
    )
    if kind == "mindspore":
        _finish_mindspore(out, view, export)
        if not export.synchronous:
            _make_asynchronous(out, view.calls, export)
    elif kind == "cann" and export.data == "statistic":
        _write_acl_statistics(out, view)
    return written


def _nobody(done: int) -> None:
    """Progress where nobody watches."""
    del done


class _View:
    """The part of a run the settings want, its values cut to their ends, their md5 taken as they
    pass.
    """

    def __init__(self, run: Run, export: Export) -> None:
        self._run, self._sample = run, export.sample
        self.digests: dict[Key, str] = {}
        self._md5 = "md5" in (export.statistics or ())
        wanted = [call for call in calls_of(run) if _wants(call, export.only)]
        tensors = [
            row
            for call in wanted
            for row in tensors_of(run, call)
            if export.only != "exception" or row.io == "input"
        ]
        self.calls: Sequence[Call] = wanted
        self.run = MemoryRun(
            run.info,
            run.processes,
            wanted,
            tensors,
            records(run, "stacks"),
            value=self._value,
            problems=run.problems,
        )

    def _value(self, tensor: Tensor) -> Array:
        values = self._run.value(tensor)
        if self._md5:
            key = (tensor.process, tensor.index, tensor.io, tensor.slot)
            self.digests[key] = hashlib.md5(
                np.ascontiguousarray(values).tobytes(), usedforsecurity=False
            ).hexdigest()
        return values if self._sample is None else ends(values, self._sample)


def ends(values: Array, count: int) -> Array:
    """The first and the last count elements, flat; a tensor of no more than twice as many stays as
    it is.
    """
    if values.size <= 2 * count:
        return values
    flat = values.reshape(-1)
    return np.concatenate([flat[:count], flat[-count:]])


def _wants(call: Call, only: str) -> bool:
    if only == "overflow":
        return call.level == "operator" and bool(call.status)
    return only != "exception" or (call.level == "operator" and call.error is not None)


def _finish_mindspore(out: Path, view: _View, export: Export) -> None:
    """Leave of a MindSpore tree what the settings asked for: statistics, tensors or both, and their
    columns.
    """
    wanted = export.statistics or DEFAULT_STATISTICS
    digests = _digests_in_order(view)
    for table in sorted(out.glob("rank_*/*/*/*/statistic.csv")):
        if export.data == "tensor":
            table.unlink()
            continue
        rank, step = int(table.parents[3].name.removeprefix("rank_")), int(table.parent.name)
        _choose_columns(table, wanted, digests.get((rank, step), {}))
    if export.data == "statistic":
        for path in out.glob("rank_*/*/*/*/*.npy"):
            path.unlink()
    if not export.arguments:
        for path in out.glob("rank_*/*/*/*/*.json"):
            path.unlink()
    if export.data == "statistic" or not export.synchronous or export.sample is not None:
        _forget_manifest(out)


def _forget_manifest(out: Path) -> None:
    """Drop opscope's own list of a tree that no longer holds what the list says."""
    (out / NAME).unlink(missing_ok=True)
    shutil.rmtree(out / "others", ignore_errors=True)


def safe_name(name: str) -> str:
    """A name of one folder, whatever the settings say."""
    return (
        "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in name) or "Net"
    )


def _digests_in_order(view: _View) -> dict[tuple[int, int], dict[tuple[str, str], list[str]]]:
    """md5 of every tensor with statistics, by (rank, step), then by name of the call and side, in
    the order of its rows.
    """
    digests: dict[tuple[int, int], dict[tuple[str, str], list[str]]] = defaultdict(
        lambda: defaultdict(list)
    )
    if not view.digests:
        return {}
    for call in view.calls:
        for row in tensors_of(view.run, call):
            if row.size is not None and row.shape is not None:
                digest = view.digests.get((row.process, row.index, row.io, row.slot), "")
                digests[call.rank, call.step][call.name, row.io].append(digest)
    return digests


def _choose_columns(
    table: Path, wanted: Sequence[str], digests: Mapping[tuple[str, str], list[str]]
) -> None:
    """Rewrite a statistic.csv with these statistics only."""
    with table.open(encoding="utf-8", newline="") as stream:
        header, *rows = csv.reader(stream)
    position = {COLUMNS[name]: header.index(name) for name in header if name in COLUMNS}
    chosen = [name for name, statistic in COLUMNS.items() if statistic in wanted]
    left = {key: list(values) for key, values in digests.items()}
    with table.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header[:FIXED] + chosen)
        for row in rows:
            waiting = left.get((row[1], row[5]), [])
            digest = waiting.pop(0) if waiting else ""
            statistics = [
                digest if COLUMNS[name] == "md5" else row[position[COLUMNS[name]]]
                for name in chosen
            ]
            writer.writerow(row[:FIXED] + statistics)


def _make_asynchronous(out: Path, calls: Iterable[Call], export: Export) -> None:
    """Move rank_R/NET/GRAPH/ITERATION to TIME/DEVICE/NET/GRAPH/ITERATION, and lay overflow files as
    JSON beside the operators.
    """
    began = time.strftime("%Y%m%d%H%M%S")
    overflowed = [call for call in calls if call.status and call.level == "operator"]
    for rank in sorted(out.glob("rank_*")):
        device = rank.name.removeprefix("rank_")
        target = out / began / device
        target.mkdir(parents=True, exist_ok=True)
        for folder in sorted(
            path
            for path in rank.iterdir()
            if path.is_dir() and path.name == safe_name(export.net_name)
        ):
            folder.rename(target / folder.name)
        for iteration in target.glob("*/*/*"):
            mine = [
                call
                for call in overflowed
                if str(call.rank) == device and str(call.step) == iteration.name
            ]
            for number, call in enumerate(mine):
                _write_overflow(iteration, call, number)


def _write_overflow(folder: Path, call: Call, number: int) -> None:
    task, stream = call.task or 0, call.stream or 0
    record = opdebug.decode(
        opdebug.encode(task=task, stream=stream, status=call.status or 0), folder
    )
    name = f"Opdebug.Node_OpDebug.{task}.{stream}.{1_600_000_000_000_000 + number}.output.0.json"
    (folder / name).write_text(json.dumps(record.document, indent=4), encoding="utf-8")


def _write_acl_statistics(out: Path, view: _View) -> None:
    """One csv for each operator in place of its dump file, with the columns of CANN's own device
    statistics.
    """
    for path in [
        path for path in out.rglob("*") if path.is_file() and not path.name.startswith("Opdebug")
    ]:
        path.unlink()
    starts = [process.start for process in view.run.processes if process.start]
    began = time.strftime("%Y%m%d%H%M%S", time.gmtime(min(starts, default=1.6e9)))
    for call in view.calls:
        rows = [row for row in tensors_of(view.run, call) if row.size is not None]
        if call.level != "operator" or not rows:
            continue
        folder = out / began / str(call.rank) / "opscope" / "0" / str(call.step)
        folder.mkdir(parents=True, exist_ok=True)
        name = (
            f"{safe_name(call.op)}.{safe_name(call.name)}.{call.task or 0}.{call.stream or 0}"
            f".{1_600_000_000_000_000 + call.index}.csv"
        )
        with (folder / name[-250:]).open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(ACL_HEADER)
            writer.writerows(_acl_row(row) for row in rows)


def _acl_row(row: Tensor) -> list[Any]:
    shape = "x".join(map(str, row.shape or ())) or "-"
    values = msgspec.structs.asdict(row)
    statistics = [
        "" if values[name] is None else values[name]
        for name in ("max", "min", "mean", "size", "nan", "neg_inf", "pos_inf")
    ]
    return [row.io, row.slot, "", f"DT_{row.dtype.upper()}", row.layout or "ND", shape, *statistics]
