# SPDX-License-Identifier: Apache-2.0
"""All rows of a comparison as an Excel workbook: origins red, what received a difference yellow, what was not compared grey."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from opscope.report.compare_rows import columns_of, kind_of, rows_of
from opscope.report.spreadsheet import GREY, PLAIN, RED, YELLOW, write_workbook

if TYPE_CHECKING:
    from opscope.analysis.compare import Comparison
    from opscope.kernels.metrics import Metric

_STYLES = {"error": RED, "warning": YELLOW, "unmatched": GREY, "N/A": GREY}


def write_comparison_xlsx(comparison: Comparison, path: Path, metrics: Sequence[Metric] = ()) -> int:
    """Writes the workbook; answers the number of its sheets."""
    kind = kind_of(comparison)
    columns = columns_of(kind, metrics)
    result = columns.index("Result")
    rows = rows_of(comparison, kind, metrics=metrics)
    return write_workbook(path, columns, ((_STYLES.get(cells[result], PLAIN), cells) for cells in rows))
