# SPDX-License-Identifier: Apache-2.0
"""Which file a comparison is written to, by the ending of its name: .csv, .xlsx, .html or .json."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING

from opscope.errors import UsageError
from opscope.run.place import with_own_name

if TYPE_CHECKING:
    from opscope.compare.tell.comparison import Comparison
    from opscope.kernels.metrics import Metric


def _csv(comparison: Comparison, path: Path, metrics: Sequence[Metric]) -> list[Path]:
    from opscope.report.compare_csv import write_comparison_csv

    return write_comparison_csv(comparison, path, metrics)


def _xlsx(comparison: Comparison, path: Path, metrics: Sequence[Metric]) -> int:
    from opscope.report.compare_xlsx import write_comparison_xlsx

    return write_comparison_xlsx(comparison, path, metrics)


def _html(comparison: Comparison, path: Path, metrics: Sequence[Metric]) -> int:
    from opscope.view.comparison_page import write_comparison_page

    return write_comparison_page(comparison, path, metrics)


def _json(comparison: Comparison, path: Path, metrics: Sequence[Metric]) -> int:
    from opscope.report.compare_rows import with_metrics
    from opscope.report.json import json_text

    path.write_text(
        json_text(with_metrics(comparison.document, comparison, metrics)) + "\n", encoding="utf-8"
    )
    return 0


# Each answers how many rows it left out, or the files it wrote.
WRITERS: dict[str, Callable[[Comparison, Path, Sequence[Metric]], int | list[Path]]] = {
    ".csv": _csv,
    ".xlsx": _xlsx,
    ".html": _html,
    ".json": _json,
}


def free_file(wanted: Path) -> Path:
    """The file asked for, or a sibling of one that is there, FILE-2.csv, FILE-3.csv, …: nothing is
    overwritten.
    """
    wanted = with_own_name(wanted)
    candidate, number = wanted, 2
    while os.path.lexists(candidate) or os.path.lexists(
        candidate.with_name(f"{candidate.stem}_part_1{candidate.suffix}")
    ):
        candidate, number = wanted.with_name(f"{wanted.stem}-{number}{wanted.suffix}"), number + 1
    return candidate


def check_output(path: Path) -> None:
    """Raises UsageError, before anything is compared, for what nothing can be written to: an
    unknown ending, no such folder.
    """
    if path.suffix.lower() not in WRITERS:
        raise UsageError(
            f"{path}: a comparison is written as {', '.join(WRITERS)}; name a file with one "
            "of these endings"
        )
    if path.is_dir():
        raise UsageError(f"{path}: a folder; name a file to write the comparison to")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise UsageError(f"{path.parent}: no such folder, or not one to write to")


def write_comparison(comparison: Comparison, path: Path, metrics: Sequence[Metric] = ()) -> int:
    """Writes a comparison as the ending of the path says, under that name when it is whole;
    free_file finds one that is free.

    Answers how many rows the file leaves out: a page and a workbook of millions of rows open
    nowhere.

    metrics are users' own, one column each. Raises UsageError where the disk refuses; what was
    there before stays then.
    """
    check_output(path)
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    try:
        written = WRITERS[path.suffix.lower()](comparison, partial, metrics)
        partial.replace(path)
        for number, part in enumerate(written[1:] if isinstance(written, list) else (), 1):
            part.replace(path.with_name(f"{path.stem}_part_{number}{path.suffix}"))
        return written if isinstance(written, int) else 0
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        for left in path.parent.glob(f"{escape(partial.stem)}*{escape(path.suffix)}"):
            left.unlink(missing_ok=True)
