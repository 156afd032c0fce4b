# SPDX-License-Identifier: Apache-2.0
"""Users' own metrics in the document of a comparison: those of the pairs of tensors that are
furthest apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.report.compare_rows import name_of, own_cells

if TYPE_CHECKING:
    from opscope.compare.tell.comparison import Comparison
    from opscope.kernels.metrics import Metric
    from opscope.run.finding import Document

SHOWN = 20


def with_metrics(document: Document, comparison: Comparison, metrics: Sequence[Metric]) -> Document:
    """The document with "metrics" in its summary: one object for each row, "row" and "golden" its
    names, then each metric by its name.
    """
    if not metrics:
        return document
    rows: list[dict[str, Any]] = []
    for detail in comparison.worst(SHOWN):
        cells = own_cells(comparison, detail, metrics)
        names = [
            name_of(call, tensor)
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
