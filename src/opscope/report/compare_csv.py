# SPDX-License-Identifier: Apache-2.0
"""All rows of a comparison as comma-separated values: NAME.csv, and NAME_part_1.csv, … where there
are more rows than one file takes.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opscope.report.compare_rows import OWN_WORDS, column_parts, columns_of, table_kind
from opscope.report.table import harmless

if TYPE_CHECKING:
    from opscope.compare.tell.comparison import Comparison
    from opscope.kernels.metrics import Metric

MOST_ROWS = 1_000_000  # of one file, as msprobe cuts them


def write_comparison_csv(
    comparison: Comparison, path: Path, metrics: Sequence[Metric] = (), *, most: int = MOST_ROWS
) -> list[Path]:
    """Writes the rows and answers the files; text that a spreadsheet would take for a formula
    begins with an apostrophe.
    """
    kind = table_kind(comparison)
    columns = columns_of(kind, metrics)
    rows = _harmless_rows(columns, column_parts(comparison, kind, metrics=metrics))
    written = [path]
    _write(path, columns, islice(rows, most))
    for more in rows:
        part = path.with_name(f"{path.stem}_part_{len(written)}{path.suffix}")
        _write(part, columns, chain([more], islice(rows, most - 1)))
        written.append(part)
    return written


def _harmless_rows(
    names: Sequence[str], parts: Iterable[Sequence[Sequence[Any]]]
) -> Iterator[tuple[Any, ...]]:
    """Rows without formulas; columns whose words are this program's own are taken as they are."""
    for columns in parts:
        safe = [
            column if name in OWN_WORDS else _harmless(column)
            for name, column in zip(names, columns, strict=True)
        ]
        yield from zip(*safe, strict=True)


def _harmless(column: Sequence[Any]) -> list[Any]:
    return [harmless(cell) if isinstance(cell, str) else cell for cell in column]


def _write(path: Path, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> None:
    with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
