# SPDX-License-Identifier: Apache-2.0
"""A comparison as a cell of a notebook shows it: the verdict in one sentence and the rows that are furthest apart."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opscope.compare.api import Comparison, Detail

ROWS = 10
_HEADS = ("call", "golden", "tensor", "error", "status", "verdict")


def html(comparison: Comparison) -> str:
    """HTML of a comparison; text of the runs is escaped."""
    finding = comparison.first()
    if finding is None:
        found = "two different models" if comparison.document.summary["two_models"] else "no difference found in what could be compared"
        said = "the runs agree" if comparison.document.complete else found
    else:
        said = f"{finding.kind} in step {finding.step}: {finding.call} ({finding.op}): {'; '.join(finding.reasons)}"
    rows = "".join(_row(detail) for detail in comparison.worst(ROWS))
    heads = "".join(f"<th>{head}</th>" for head in _HEADS)
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>" if rows else ""
    warned = "".join(f"<p>warning: {escape(line)}</p>" for line in comparison.document.summary["warnings"])
    return f"<p><b>opscope compare</b> {escape(said)}</p>{warned}{table}"


def _row(detail: Detail) -> str:
    tensor = detail.target or detail.golden
    cells = (
        detail.target_call.name if detail.target_call is not None else "–",
        detail.golden_call.name if detail.golden_call is not None else "–",
        f"{tensor.io} {tensor.slot}" if tensor is not None else "",
        f"{detail.error:.3g}",
        detail.status,
        detail.verdict,
    )
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
