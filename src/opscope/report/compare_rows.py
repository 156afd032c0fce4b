# SPDX-License-Identifier: Apache-2.0
"""A comparison as rows under the columns that users of msprobe know, their names kept, and one column more: Verdict.

Columns follow msprobe's three kinds of table: of tensors when values were kept, of statistics, of digests. Result is pass, warning
(differs, made elsewhere), error (the origin of a difference), unmatched (one side only) or N/A (nothing to compare): never pass for
what was not compared. EucDist is the Euclidean norm of the difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from opscope.errors import OpscopeError
from opscope.report.json import json_text

if TYPE_CHECKING:
    from opscope.analysis.compare import Comparison, Detail
    from opscope.kernels.metrics import Metric
    from opscope.kernels.pair import Pair
    from opscope.run.schema import Call, Tensor, ValueRef

BASIC = (
    "NPU Name", "Bench Name", "NPU Dtype", "Bench Dtype", "NPU Tensor Shape", "Bench Tensor Shape", "NPU Requires_grad",
    "Bench Requires_grad",
)  # fmt: skip
ALL = ("Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr", "One Thousandth Err Ratio", "Five Thousandths Err Ratio")
SUMMARY = (
    "Max diff", "Min diff", "Mean diff", "L2norm diff", "MaxRelativeErr", "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr",
)  # fmt: skip
MD5 = ("NPU MD5", "BENCH MD5")
SUM = ("NPU max", "NPU min", "NPU mean", "NPU l2norm", "Bench max", "Bench min", "Bench mean", "Bench l2norm")
TAIL = ("Requires_grad Consistent", "Result", "Err_message", "NPU_Stack_Info")
FILES = "Data_name"  # of tables of values only
VERDICT = "Verdict"
_STATISTICS = ("max", "min", "mean", "l2norm")
_UNLIKE = {
    "only in target": "Bench api/module unmatched.",
    "only in golden": "NPU api/module unmatched.",
    "shape differs": "Shape of NPU and bench tensor do not match. Skipped.",
    "not measured": "Neither values nor statistics on both sides, can not compare.",
}
_LOST = {"target": "NPU does not have data file.", "golden": "Bench does not have data file."}


def kind_of(comparison: Comparison) -> str:
    """Which table this is: "all" where both sides kept values, "summary" where statistics are there, else "md5"."""
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


def rows_of(comparison: Comparison, kind: str, rows: Sequence[int] | None = None, *, metrics: Sequence[Metric] = ()) -> Iterator[list[Any]]:
    """One list of cells for each row, in the order of the columns; all rows unless some are named."""
    cells: dict[str, Callable[[Detail], list[Any]]] = {
        "all": lambda detail: [*_tensor_cells(detail), *_own_cells(comparison, detail, metrics), *_extremes(detail)],
        "summary": _summary_cells,
        "md5": _digest_cells,
    }
    middle = cells[kind]
    last: tuple[object, object] | None = None
    for detail in comparison.details(rows):
        owner = (_index(detail.target_call), _index(detail.golden_call))
        files = [_files(detail)] if kind == "all" else []
        yield [*_basic_cells(detail), *middle(detail), *_tail_cells(detail, first=owner != last), *files, detail.verdict]
        last = owner


def _index(call: Call | None) -> object:
    return None if call is None else (call.process, call.index)


def _name(call: Call | None, tensor: Tensor | None) -> str:
    if call is None or tensor is None:
        return "N/A"
    own = tensor.slot.startswith("parameters.") or ".parameters_grad" in call.name
    return f"{call.name}.{tensor.slot}" if own else f"{call.name}.{tensor.io}.{tensor.slot.removeprefix('kwargs.')}"


def _basic_cells(detail: Detail) -> list[Any]:
    sides = (detail.target, detail.golden)
    return [
        _name(detail.target_call, detail.target), _name(detail.golden_call, detail.golden),
        *("N/A" if side is None else side.dtype for side in sides),
        *("N/A" if side is None or side.shape is None else str(list(side.shape)) for side in sides),
        *("N/A" if side is None or side.requires_grad is None else str(side.requires_grad) for side in sides),
    ]  # fmt: skip


def _tensor_cells(detail: Detail) -> list[Any]:
    found = detail.metrics
    if found is not None:
        cells = _metric_cells(found)
    elif detail.status == "same":
        cells = [1.0, 0.0, 0.0, 0.0, 1.0, 1.0]
    elif detail.status == "shape differs":
        cells = ["shape unmatched"] * len(ALL)
    else:
        cells = ["unsupported"] * len(ALL)
    return cells


def _own_cells(comparison: Comparison, detail: Detail, metrics: Sequence[Metric]) -> list[Any]:
    """What users' own metrics answer for the values of a row; "unsupported" where values are missing or have two shapes."""
    sides = (detail.target, detail.golden)
    if not metrics or any(side is None or side.value is None for side in sides):
        return ["unsupported"] * len(metrics)
    runs = (comparison.pairing.target.run, comparison.pairing.golden.run)
    try:
        target, golden = (run.value(side) for run, side in zip(runs, sides, strict=True) if side is not None)
    except OpscopeError:
        return ["unsupported"] * len(metrics)
    return [metric(target, golden) if target.shape == golden.shape else "unsupported" for metric in metrics]


def _metric_cells(found: Pair) -> list[Any]:
    euclidean = None if found.rmse is None else found.rmse * math.sqrt(found.compared)
    cells = (found.cosine, euclidean, found.max_abs, found.max_rel, found.within_1_1000, found.within_5_1000)
    return ["N/A" if cell is None else cell for cell in cells]


def _summary_cells(detail: Detail) -> list[Any]:
    if detail.target is None or detail.golden is None:
        return ["N/A"] * len(SUMMARY) + _extremes(detail)
    both = [(getattr(detail.target, name), getattr(detail.golden, name)) for name in _STATISTICS]
    differences = ["N/A" if one is None or other is None else one - other for one, other in both]
    return [*differences, *(_percent(one, other) for one, other in both), *_extremes(detail)]


def _percent(one: float | None, other: float | None) -> str:
    """How far a statistic is off, in percent of golden's; inf of a golden of 0."""
    if one is None or other is None:
        return "N/A"
    if one == other:
        return "0"
    return f"{abs((one - other) / other) * 100:.6f}%" if other else "inf"


def _digest_cells(detail: Detail) -> list[Any]:
    return ["N/A" if side is None or side.digest is None else f"{side.digest:016x}" for side in (detail.target, detail.golden)]


def _extremes(detail: Detail) -> list[Any]:
    sides = (detail.target, detail.golden)
    return ["N/A" if side is None or (value := getattr(side, name)) is None else value for side in sides for name in _STATISTICS]


def result_of(detail: Detail) -> str:
    """pass, warning, error, unmatched or N/A."""
    if detail.status in ("only in target", "only in golden"):
        return "unmatched"
    if detail.status == "not measured" or (detail.lost and detail.status in ("same", "within tolerance")):
        return "N/A"
    if detail.status in ("same", "within tolerance"):
        return "pass"
    return "error" if detail.verdict == "origin" or detail.status == "shape differs" else "warning"


def _tail_cells(detail: Detail, *, first: bool) -> list[Any]:
    grads = [None if side is None else side.requires_grad for side in (detail.target, detail.golden)]
    consistent = "N/A" if None in grads else str(grads[0] == grads[1])
    call = detail.target_call or detail.golden_call
    source = call.source if first and call is not None and call.source else "N/A"
    return [consistent, result_of(detail), json_text(_messages(detail)), source]


def _files(detail: Detail) -> str:
    """The files of both sides as msprobe writes them, a list in Python's words; "-1" for none."""
    values = [None if side is None else side.value for side in (detail.target, detail.golden)]
    return "-1" if values == [None, None] else str([_place(value) for value in values])


def _place(value: ValueRef | None) -> str:
    """The file that holds a value, and its key where the file holds several; "-1" for none."""
    if value is None:
        return "-1"
    file = PurePath(value.shard).name
    return f"{file}:{value.key}" if value.key else file


def _messages(detail: Detail) -> list[str]:
    found = [detail.message] if detail.message else []
    if detail.lost:
        found.append(_LOST[detail.lost])
    elif detail.status in _UNLIKE:
        found.append(_UNLIKE[detail.status])
    metrics = detail.metrics
    if metrics is not None and metrics.nonfinite_mismatch:
        found.append("The position of inf or nan in NPU and bench Tensor do not match.")
    if detail.target is not None and detail.golden is not None and detail.target.dtype != detail.golden.dtype:
        found.append("Dtype of NPU and bench tensor do not match.")
    if detail.status == "differs" and not math.isnan(detail.error):
        bound = f", {detail.allowed:.3g} is allowed" if detail.error > detail.allowed else ""
        found.append(f"off by {detail.error:.3g} of golden's scale{bound}")
    return found
