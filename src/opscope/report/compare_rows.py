# SPDX-License-Identifier: Apache-2.0
"""A comparison as rows under the columns that users of msprobe know, their names kept, and one
column more: Verdict.

Columns follow msprobe's three kinds of table: of tensors when values were kept, of statistics, of
digests. Result is pass, warning (differs, made elsewhere), error (the origin of a difference),
unmatched (one side only) or N/A (nothing to compare): never pass for what was not compared. EucDist
is the Euclidean norm of the difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.compare.pair.tensors import STATUS_WORDS
from opscope.compare.side.records import Cells
from opscope.errors import OpscopeError
from opscope.report.json import json_text

if TYPE_CHECKING:
    from opscope.arrays import Bools, Ints
    from opscope.compare.tell.comparison import Comparison, Detail
    from opscope.kernels.metrics import Metric
    from opscope.kernels.pair import Pair
    from opscope.run.finding import Document
    from opscope.run.schema import Call, Tensor, ValueRef

BASIC = (
    "NPU Name",
    "Bench Name",
    "NPU Dtype",
    "Bench Dtype",
    "NPU Tensor Shape",
    "Bench Tensor Shape",
    "NPU Requires_grad",
    "Bench Requires_grad",
)
ALL = (
    "Cosine",
    "EucDist",
    "MaxAbsErr",
    "MaxRelativeErr",
    "One Thousandth Err Ratio",
    "Five Thousandths Err Ratio",
)
SUMMARY = (
    "Max diff",
    "Min diff",
    "Mean diff",
    "L2norm diff",
    "MaxRelativeErr",
    "MinRelativeErr",
    "MeanRelativeErr",
    "NormRelativeErr",
)
MD5 = ("NPU MD5", "BENCH MD5")
SUM = (
    "NPU max",
    "NPU min",
    "NPU mean",
    "NPU l2norm",
    "Bench max",
    "Bench min",
    "Bench mean",
    "Bench l2norm",
)
TAIL = ("Requires_grad Consistent", "Result", "Err_message", "NPU_Stack_Info")
FILES = "Data_name"  # of tables of values only
VERDICT = "Verdict"
OWN_WORDS = frozenset(
    {  # columns in which no text of a run stands
        *ALL,
        *SUMMARY,
        *MD5,
        *SUM,
        "NPU Tensor Shape",
        "Bench Tensor Shape",
        "NPU Requires_grad",
        "Bench Requires_grad",
        "Requires_grad Consistent",
        "Result",
        VERDICT,
    }
)
MEASURED = 20  # pairs that a document has with users' own metrics
_PART = 1 << 15  # rows that are held as Python values at once
_STATISTICS = ("max", "min", "mean", "l2norm")
_UNLIKE = {
    "only in target": "Bench api/module unmatched.",
    "only in golden": "NPU api/module unmatched.",
    "shape differs": "Shape of NPU and bench tensor do not match. Skipped.",
    "not measured": "Neither values nor statistics on both sides, can not compare.",
}
_LOST = {"target": "NPU does not have data file.", "golden": "Bench does not have data file."}


def table_kind(comparison: Comparison) -> str:
    """Which table this is: "all" where both sides kept values, "summary" where statistics are
    there, else "md5".
    """
    sides = (comparison.pairing.target.tensors, comparison.pairing.golden.tensors)
    if all(side.kept.any() for side in sides):
        return "all"
    measured = any(not bool((np.isnan(side.l2norm) & np.isnan(side.max)).all()) for side in sides)
    return "summary" if measured else "md5"


def columns_of(kind: str, metrics: Sequence[Metric] = ()) -> tuple[str, ...]:
    """The names of the columns; users' own metrics follow those of values."""
    own = tuple(metric.name for metric in metrics)
    middle = {"all": (*ALL, *own, *SUM), "summary": (*SUMMARY, *SUM), "md5": MD5}[kind]
    return (*BASIC, *middle, *TAIL, *([FILES] if kind == "all" else []), VERDICT)


def furthest(comparison: Comparison, most: int) -> Ints:
    """All rows, or as many as a file takes, in their order: those without a partner and those that
    are furthest apart.
    """
    rows = comparison.rows
    if len(rows) <= most:
        return np.arange(len(rows))
    weight = np.where(np.isnan(rows.error), np.inf, rows.error)
    return np.sort(np.argsort(-weight, kind="stable")[:most])


def left_out(count: int) -> str:
    """What a file says of the rows that it does not hold."""
    return f"{count} rows that are no further apart than these are left out; a .csv holds all."


def rows_of(
    comparison: Comparison,
    kind: str,
    rows: Ints | None = None,
    *,
    metrics: Sequence[Metric] = (),
) -> Iterator[tuple[Any, ...]]:
    """One tuple of cells for each row, in the order of the columns; all rows unless some are
    named.
    """
    for columns in column_parts(comparison, kind, rows, metrics=metrics):
        yield from zip(*columns, strict=True)


def column_parts(
    comparison: Comparison,
    kind: str,
    rows: Ints | None = None,
    *,
    metrics: Sequence[Metric] = (),
) -> Iterator[list[list[Any]]]:
    """The same column by column, some tens of thousands of rows at a time."""
    chosen = np.arange(len(comparison.rows)) if rows is None else rows
    cells = Cells(comparison.pairing.target), Cells(comparison.pairing.golden)
    owners = comparison.rows.target_call[chosen], comparison.rows.golden_call[chosen]
    new = np.ones(len(chosen), dtype=np.bool_)
    new[1:] = (owners[0][1:] != owners[0][:-1]) | (owners[1][1:] != owners[1][:-1])
    for start in range(0, len(chosen), _PART):
        part = _Part(comparison, cells, chosen[start : start + _PART], new[start : start + _PART])
        middle = (
            part.digests()
            if kind == "md5"
            else [*(part.measured(metrics) if kind == "all" else part.summary()), *part.extremes()]
        )
        files = [part.files()] if kind == "all" else []
        yield [*part.basic(), *middle, *part.tail(), *files, part.verdicts]


class _Part:
    """Some rows of a comparison, column by column; each column of a run is read once."""

    def __init__(
        self,
        comparison: Comparison,
        cells: tuple[Cells, Cells],
        rows: Ints,
        new: Bools,
    ) -> None:
        table = comparison.rows
        self._comparison, self._cells, self._rows, self._new = comparison, cells, rows, new
        self._places = table.target[rows], table.golden[rows]
        self._owners = table.target_call[rows], table.golden_call[rows]
        self._known: dict[str, tuple[list[Any], ...]] = {}
        self._status = [STATUS_WORDS[code] for code in table.status[rows].tolist()]
        self.verdicts = comparison.verdicts(rows)

    def _tensors(self, name: str) -> tuple[list[Any], list[Any]]:
        """A column of both sides' tensors, None where a side has no such tensor."""
        if name not in self._known:
            self._known[name] = tuple(
                cells.of_tensors(name, places)
                for cells, places in zip(self._cells, self._places, strict=True)
            )
        mine, theirs = self._known[name]
        return mine, theirs

    def _calls(self, name: str) -> tuple[list[Any], list[Any]]:
        return self._cells[0].of_calls(name, self._owners[0]), self._cells[1].of_calls(
            name, self._owners[1]
        )

    def basic(self) -> list[list[Any]]:
        """Names, types, shapes, whether gradients are wanted."""
        names = [
            list(map(_name, *columns))
            for columns in zip(
                self._calls("name"), self._tensors("io"), self._tensors("slot"), strict=True
            )
        ]
        types = [
            ["N/A" if cell is None else cell for cell in column]
            for column in self._tensors("dtype")
        ]
        shapes = [list(map(_shape, column)) for column in self._tensors("shape")]
        grads = [
            ["N/A" if cell is None else str(cell) for cell in column]
            for column in self._tensors("requires_grad")
        ]
        return [*names, *types, *shapes, *grads]

    def measured(self, metrics: Sequence[Metric]) -> list[list[Any]]:
        """Metrics of values where both sides kept theirs, then users' own."""
        pairs = self._comparison.measured.pairs
        cells = [
            _tensor_cells(pairs.get(row), status)
            for row, status in zip(self._rows.tolist(), self._status, strict=True)
        ]
        if metrics:
            details = self._comparison.details(self._rows.tolist())
            cells = [
                [*known, *_own_cells(self._comparison, detail, metrics)]
                for known, detail in zip(cells, details, strict=True)
            ]
        return [list(column) for column in zip(*cells, strict=True)]

    def summary(self) -> list[list[Any]]:
        """Differences of statistics, and how far they are off in percent."""
        both = [self._tensors(name) for name in _STATISTICS]
        return [
            *(list(map(_less, *columns)) for columns in both),
            *(list(map(_percent, *columns)) for columns in both),
        ]

    def extremes(self) -> list[list[Any]]:
        """Statistics of target, then of golden."""
        return [
            ["N/A" if cell is None else cell for cell in self._tensors(name)[side]]
            for side in (0, 1)
            for name in _STATISTICS
        ]

    def digests(self) -> list[list[Any]]:
        """Digests of both."""
        return [
            ["N/A" if cell is None else f"{cell:016x}" for cell in column]
            for column in self._tensors("digest")
        ]

    def tail(self) -> list[list[Any]]:
        """What the rows come to, messages, where the code and the values are."""
        grads = [
            "N/A" if None in both else str(both[0] == both[1])
            for both in zip(*self._tensors("requires_grad"), strict=True)
        ]
        lost = (
            [self._lost(row) for row in self._rows.tolist()]
            if any(self._comparison.measured.lost)
            else [""] * len(self._rows)
        )
        results = list(map(result_of, self._status, self.verdicts, lost))
        sources = [
            (mine or theirs or "N/A") if new else "N/A"
            for new, mine, theirs in zip(self._new.tolist(), *self._sources(), strict=True)
        ]
        return [grads, results, self._messages(lost), sources]

    def files(self) -> list[str]:
        """The files of both sides as msprobe writes them, a list in Python's words; "-1" for
        none.
        """
        both = zip(*self._tensors("value"), strict=True)
        return [
            "-1" if mine is None and theirs is None else str([_place(mine), _place(theirs)])
            for mine, theirs in both
        ]

    def _sources(self) -> tuple[list[Any], list[Any]]:
        """Source of the target's call; golden's where the target has none."""
        mine, theirs = self._calls("source")
        return mine, [
            None if call >= 0 else source
            for call, source in zip(self._owners[0].tolist(), theirs, strict=True)
        ]

    def _lost(self, row: int) -> str:
        return next(
            (
                word
                for word, lost in zip(
                    ("target", "golden"), self._comparison.measured.lost, strict=True
                )
                if row in lost
            ),
            "",
        )

    def _messages(self, lost: list[str]) -> list[str]:
        table, measured = self._comparison.rows, self._comparison.measured
        types = [
            mine is not None and theirs is not None and mine != theirs
            for mine, theirs in zip(*self._tensors("dtype"), strict=True)
        ]
        error, allowed = table.error[self._rows].tolist(), table.allowed[self._rows].tolist()
        messages = []
        for number, (row, status) in enumerate(zip(self._rows.tolist(), self._status, strict=True)):
            pair = measured.pairs.get(row)
            remarks = [measured.unreadable[row]] if row in measured.unreadable else []
            if lost[number]:
                remarks.append(_LOST[lost[number]])
            elif status in _UNLIKE:
                remarks.append(_UNLIKE[status])
            if pair is not None and pair.nonfinite_mismatch:
                remarks.append("The position of inf or nan in NPU and bench Tensor do not match.")
            if types[number]:
                remarks.append("Dtype of NPU and bench tensor do not match.")
            if status == "differs" and not math.isnan(error[number]):
                bound = (
                    f", {allowed[number]:.3g} is allowed" if error[number] > allowed[number] else ""
                )
                remarks.append(f"off by {error[number]:.3g} of golden's scale{bound}")
            messages.append(json_text(remarks) if remarks else "[]")
        return messages


def with_metrics(document: Document, comparison: Comparison, metrics: Sequence[Metric]) -> Document:
    """The document with "metrics", users' own, in its summary: one object for each of the pairs of
    tensors that are furthest apart, "row" and "golden" its names, then each metric by its name.
    """
    if not metrics:
        return document
    rows: list[dict[str, Any]] = []
    for detail in comparison.worst(MEASURED):
        cells = _own_cells(comparison, detail, metrics)
        names = [
            _name_of(call, tensor)
            for call, tensor in (
                (detail.target_call, detail.target),
                (detail.golden_call, detail.golden),
            )
        ]
        rows.append(
            {
                "row": names[0],
                "golden": names[1],
                **{metric.name: cell for metric, cell in zip(metrics, cells, strict=True)},
            }
        )
    return msgspec.structs.replace(document, summary={**document.summary, "metrics": rows})


def _name(call: str | None, io: str | None, slot: str | None) -> str:
    if call is None or slot is None:
        return "N/A"
    own = slot.startswith("parameters.") or ".parameters_grad" in call
    return f"{call}.{slot}" if own else f"{call}.{io}.{slot.removeprefix('kwargs.')}"


def _name_of(call: Call | None, tensor: Tensor | None) -> str:
    """The name of a tensor's row, "N/A" where a side has none."""
    return "N/A" if call is None or tensor is None else _name(call.name, tensor.io, tensor.slot)


@lru_cache(maxsize=4096)
def _shape(shape: tuple[int, ...] | None) -> str:
    return "N/A" if shape is None else str(list(shape))


def _tensor_cells(pair: Pair | None, status: str) -> list[Any]:
    if pair is not None:
        cells = _metric_cells(pair)
    elif status == "same":
        cells = [1.0, 0.0, 0.0, 0.0, 1.0, 1.0]
    elif status == "shape differs":
        cells = ["shape unmatched"] * len(ALL)
    else:
        cells = ["unsupported"] * len(ALL)
    return cells


def _own_cells(comparison: Comparison, detail: Detail, metrics: Sequence[Metric]) -> list[Any]:
    """What users' own metrics answer for the values of a row; "unsupported" where values are
    missing or have two shapes.
    """
    sides = (detail.target, detail.golden)
    if not metrics or any(side is None or side.value is None for side in sides):
        return ["unsupported"] * len(metrics)
    runs = (comparison.pairing.target.run, comparison.pairing.golden.run)
    try:
        target, golden = (
            run.value(side) for run, side in zip(runs, sides, strict=True) if side is not None
        )
    except OpscopeError:
        return ["unsupported"] * len(metrics)
    return [
        metric(target, golden) if target.shape == golden.shape else "unsupported"
        for metric in metrics
    ]


def _metric_cells(pair: Pair) -> list[Any]:
    euclidean = None if pair.rmse is None else pair.rmse * math.sqrt(pair.compared)
    cells = (
        pair.cosine,
        euclidean,
        pair.max_abs,
        pair.max_rel,
        pair.within_1_1000,
        pair.within_5_1000,
    )
    return ["N/A" if cell is None else cell for cell in cells]


def _less(one: float | None, other: float | None) -> float | str:
    return "N/A" if one is None or other is None else one - other


def _percent(one: float | None, other: float | None) -> str:
    """How far a statistic is off, in percent of golden's; inf of a golden of 0."""
    if one is None or other is None:
        return "N/A"
    if one == other:
        return "0"
    return f"{abs((one - other) / other) * 100:.6f}%" if other else "inf"


def result_of(status: str, verdict: str, lost: str) -> str:
    """pass, warning, error, unmatched or N/A."""
    if status in ("same", "within tolerance"):
        return "N/A" if lost else "pass"
    if status in ("only in target", "only in golden"):
        return "unmatched"
    if status == "not measured":
        return "N/A"
    return "error" if verdict == "origin" or status == "shape differs" else "warning"


def _place(value: ValueRef | None) -> str:
    """The file that holds a value, and its key where the file holds several; "-1" for none."""
    if value is None:
        return "-1"
    file = PurePath(value.shard).name
    return f"{file}:{value.key}" if value.key else file
