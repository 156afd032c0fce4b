# SPDX-License-Identifier: Apache-2.0
"""All rows of a comparison as an Excel workbook: origins red, what received a difference yellow,
what was not compared grey.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from opscope.report.compare_rows import columns_of, furthest, left_out, rows_of, table_kind
from opscope.report.spreadsheet import GREY, PLAIN, RED, YELLOW, write_workbook

if TYPE_CHECKING:
    from opscope.compare.tell.comparison import Comparison
    from opscope.kernels.metrics import Metric

_STYLES = {"error": RED, "warning": YELLOW, "unmatched": GREY, "N/A": GREY}


MOST_ROWS = 200_000  # a workbook of more is slow to open and hard to read


def write_comparison_xlsx(
    comparison: Comparison, path: Path, metrics: Sequence[Metric] = (), *, most: int = MOST_ROWS
) -> int:
    """Writes the workbook, which ends with a line on what it leaves out; answers how many rows
    these are.
    """
    kind = table_kind(comparison)
    columns = columns_of(kind, metrics)
    result = columns.index("Result")
    rows = rows_of(comparison, kind, furthest(comparison, most), metrics=metrics)
    left = max(len(comparison.rows) - most, 0)
    said = [(GREY, (left_out(left),))] if left else []
    write_workbook(
        path, columns, chain(((_STYLES.get(cells[result], PLAIN), cells) for cells in rows), said)
    )
    return left
