# SPDX-License-Identifier: Apache-2.0
"""A comparison as the page shows it: every column of its table, the worst of each module on both
sides, and what the largest differences look like.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.errors import OpscopeError
from opscope.report.compare_rows import columns_of, furthest, left_out, rows_of, table_kind
from opscope.view.grid import Grid
from opscope.view.modules import above
from opscope.view.pictures import MOST_ELEMENTS, picture
from opscope.view.references import reference

if TYPE_CHECKING:
    from opscope.compare.tell.comparison import Comparison, Detail
    from opscope.kernels.metrics import Metric
    from opscope.run.finding import Document

MOST_ROWS = 20_000  # in the page; the furthest apart are kept
MOST_PICTURES = 12
MOST_CALLS = 400  # that part, in full in the page
# of several verdicts the last counts
APART = frozenset({"structural", "receiver", "amplifier", "origin"})
VERDICTS = ("same", "unknown", "noise", "structural", "receiver", "amplifier", "origin")


class Compared(msgspec.Struct, frozen=True):
    """A comparison with the document that is told of it, and users' own columns."""

    comparison: Comparison
    document: Document
    metrics: tuple[Metric, ...] = ()


def comparison_document(compared: Compared, *, most: int) -> dict[str, Any]:
    """Columns, rows, for each row the calls it belongs to, the modules of both sides, pictures; of
    the rows the furthest apart.
    """
    comparison, document, metrics = compared.comparison, compared.document, compared.metrics
    kind = table_kind(comparison)
    chosen = furthest(comparison, most)
    left = len(comparison.rows) - len(chosen)
    details = list(comparison.details(chosen.tolist()))
    return {
        "runs": document.runs,
        "agree": document.verdict == "clean" and document.complete,
        "two_models": bool(document.summary.get("two_models")),
        "columns": columns_of(kind, metrics),
        "rows": list(rows_of(comparison, kind, chosen, metrics=metrics)),
        "calls": [_calls(detail) for detail in details],
        "left": left_out(left) if left else None,
        "modules": _modules(details),
        "pictures": list(_pictures(comparison, details)),
    }


def calls_that_part(document: dict[str, Any]) -> list[str]:
    """The target's calls that a page of a comparison leads to first: those of its pictures, then
    those whose results are apart, in order.
    """
    drawn = [one["calls"][0] for one in document["pictures"]]
    apart = [
        call[0]
        for call, row in zip(document["calls"], document["rows"], strict=True)
        if row[-1] in APART
    ]
    return [call for call in dict.fromkeys([*drawn, *apart]) if call is not None][:MOST_CALLS]


def paint_distance(grid: Grid, comparison: Comparison) -> None:
    """One more plane of a target's grid: how far each call's results are from golden's, 1 (equal)
    to 255 (an error of 1 or more), by powers of two.
    """
    plane = np.zeros_like(grid.planes["health"])
    at = {(row.process, row.step): (number, row) for number, row in enumerate(grid.rows)}
    error = np.where(np.isnan(comparison.rows.error), 0.0, comparison.rows.error)
    chosen = np.flatnonzero(comparison.rows.target_call >= 0)
    chosen = chosen[np.argsort(-error[chosen], kind="stable")][:MOST_ROWS]
    for detail in comparison.details(chosen.tolist()):
        call = detail.target_call
        numbered_row = None if call is None else at.get((call.process, call.step))
        if call is None or numbered_row is None:
            continue
        column = grid.place(numbered_row[1], call.index)
        if column is not None:
            cell = numbered_row[0], column // grid.fold
            plane[cell] = max(plane[cell], distance_byte(detail.error))
    grid.planes["distance"] = plane


def distance_byte(error: float) -> int:
    """1 for equal, 255 for a relative error of 1 and more, 4 bytes an octave between."""
    if np.isnan(error):
        return 0
    return 1 if error <= 0 else int(np.clip(255 + 4 * np.log2(error), 2, 255))


def _calls(detail: Detail) -> list[Any]:
    """Reference, module and name of the target's call, module and name of golden's."""
    target, golden = detail.target_call, detail.golden_call
    first = (
        [None, None, None]
        if target is None
        else [reference(target.process, target.index), target.module or "", target.name]
    )
    return [*first, *([None, None] if golden is None else [golden.module or "", golden.name])]


def _modules(details: Sequence[Detail]) -> dict[str, dict[str, Any]]:
    """Of each path: verdict and largest error of all below it, which sides have it, its parts."""
    modules: dict[str, dict[str, Any]] = defaultdict(
        lambda: {"verdict": "same", "error": 0.0, "rows": 0, "target": False, "golden": False}
    )
    for detail in details:
        sides = (("target", detail.target_call), ("golden", detail.golden_call))
        paths = {path for _, call in sides if call is not None for path in above(call.module or "")}
        for path in paths:
            module = modules[path]
            module["rows"] += 1
            worse = VERDICTS.index(detail.verdict) > VERDICTS.index(module["verdict"])
            module["verdict"] = detail.verdict if worse else module["verdict"]
            if not np.isnan(detail.error):
                module["error"] = max(module["error"], detail.error)
        for name, call in sides:
            for path in above(call.module or "") if call is not None else ():
                modules[path][name] = True
    for path in list(modules):
        modules[path]["parts"] = []
    for path in sorted(modules):
        if path:
            modules[path.rpartition(".")[0]]["parts"].append(path)
    return dict(modules)


def _pictures(comparison: Comparison, details: Sequence[Detail]) -> Iterator[dict[str, Any]]:
    """Of the rows that are furthest apart, where values were kept: which elements differ."""
    kept = [
        detail
        for detail in details
        if detail.target is not None
        and detail.golden is not None
        and detail.target.value is not None
        and detail.golden.value is not None
        and detail.error > detail.allowed
        and detail.target.io == "output"
        and (detail.target.size or 0) <= MOST_ELEMENTS
    ]
    # Where it began, then those that it reached first, each call once.
    order = sorted(kept, key=lambda one: (one.verdict != "origin", one.row))
    once = {(one.target_call.name if one.target_call else one.row): one for one in order[::-1]}
    shown = {one.row for one in once.values()}
    for detail in [one for one in order if one.row in shown][:MOST_PICTURES]:
        try:
            ours = comparison.pairing.target.run.value(detail.target)  # type: ignore[arg-type]
            theirs = comparison.pairing.golden.run.value(detail.golden)  # type: ignore[arg-type]
        except (OpscopeError, MemoryError):
            continue
        if ours.shape == theirs.shape and ours.size:
            yield {"row": detail.row, "calls": _calls(detail), **picture(ours, theirs)}
