# SPDX-License-Identifier: Apache-2.0
"""A comparison as one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from opscope.report.compare_terminal import comparison_lines
from opscope.view.comparison import MOST_ROWS, Compared
from opscope.view.documents import Documents
from opscope.view.page import page

if TYPE_CHECKING:
    from opscope.compare.tell.comparison import Comparison
    from opscope.kernels.metrics import Metric
    from opscope.run.finding import Document


def write_comparison_page(
    comparison: Comparison, path: Path, metrics: Sequence[Metric] = ()
) -> int:
    """Writes the page; answers how many rows it leaves out."""
    target = comparison.pairing.target.run
    compared = Compared(comparison, comparison.document, tuple(metrics))
    documents = Documents(target, comparison.document, compared=[compared])
    text = comparison_text(comparison.document)
    path.write_text(page(documents.whole(), title="opscope compare", text=text), encoding="utf-8")
    return max(len(comparison.rows) - MOST_ROWS, 0)


def comparison_text(document: Document) -> str:
    """What is read where no script runs: the verdict of the terminal."""
    return "\n".join(each.plain for each in comparison_lines(document, width=100, here=Path.cwd()))
