# SPDX-License-Identifier: Apache-2.0
"""Two runs side by side, compared: the document that the verb prints, every row behind it with its
records, and a notebook's cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.compare.pair.tensors import STATUS_WORDS, Rows
from opscope.compare.side.records import call_records, tensor_records
from opscope.run.finding import Document, Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opscope.compare.cause.causes import Cause
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.verdict.allowance import Measures
    from opscope.compare.verdict.stored_values import Measured
    from opscope.kernels.pair import Pair
    from opscope.run.schema import Call, Tensor

VERDICTS = ("same", "unknown", "noise", "structural", "receiver", "amplifier")
_SEVERITY = np.array([0, 2, 4, 1, 4, 3, 3], dtype=np.int8)  # by status code of pair.tensors
ROWS = 10
_HEADS = ("call", "golden", "tensor", "error", "status", "verdict")


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a comparison with its records; a side that has no such tensor, or no such call, is
    None.

    error and allowed are relative, NaN where unknown; status is one of pair.tensors.STATUS_WORDS;
    verdict that of the call: same, noise, origin, receiver, amplifier, structural or unknown.
    metrics are there where both sides kept their values and differ. lost is the side that should
    have the values and does not, "" elsewhere: statistics alone were compared then.
    """

    row: int
    target_call: Call | None
    golden_call: Call | None
    target: Tensor | None
    golden: Tensor | None
    error: float
    allowed: float
    status: str
    verdict: str
    metrics: Pair | None = None
    message: str = ""
    lost: str = ""


class Comparison:
    """Two runs side by side: the document that the verb prints, and every row behind it."""

    def __init__(
        self,
        pairing: Pairing,
        measures: Measures,
        causes: Sequence[Cause],
        measured: Measured,
        document: Document,
    ) -> None:
        self.pairing = pairing
        self.measures = measures
        self.causes = tuple(causes)
        self.measured = measured
        self.document = document

    def __repr__(self) -> str:
        return f"<Comparison of {len(self.rows)} pairs>\n{self.document!r}"

    @property
    def rows(self) -> Rows:
        """All rows as columns."""
        return self.pairing.rows

    @property
    def findings(self) -> tuple[Finding, ...]:
        """First cause first."""
        return self.document.findings

    def first(self) -> Finding | None:
        """The finding to begin with, None when the runs agree."""
        return self.document.findings[0] if self.document.findings else None

    def worst(self, count: int = 20) -> list[Detail]:
        """The rows that are furthest apart, largest error first; equal rows and rows without a
        partner are no candidates.
        """
        error = np.where(np.isnan(self.rows.error), -1.0, self.rows.error)
        order = np.argsort(-error, kind="stable")[:count]
        return list(self.details(row for row in order.tolist() if error[row] > 0))

    def details(self, rows: Iterable[int] | None = None) -> Iterator[Detail]:
        """Rows with their records, all of them in the order of the target's calls unless some are
        named.
        """
        chosen = np.arange(len(self.rows)) if rows is None else np.fromiter(rows, dtype=np.int64)
        for start in range(0, len(chosen), 20_000):
            yield from self._details(chosen[start : start + 20_000])

    def _details(self, chosen: np.ndarray[Any, np.dtype[np.int64]]) -> Iterator[Detail]:
        rows, sides = self.rows, (self.pairing.target, self.pairing.golden)
        calls = [
            call_records(side, column[chosen].tolist())
            for side, column in zip(sides, (rows.target_call, rows.golden_call), strict=True)
        ]
        tensors = []
        for side, column in zip(sides, (rows.target, rows.golden), strict=True):
            tensor_rows = column[chosen]
            tensors.append(tensor_records(side, tensor_rows[tensor_rows >= 0]))
        for row in chosen.tolist():
            yield Detail(
                row=row,
                target_call=calls[0].get(int(rows.target_call[row])),
                golden_call=calls[1].get(int(rows.golden_call[row])),
                target=tensors[0].get(int(rows.target[row])),
                golden=tensors[1].get(int(rows.golden[row])),
                error=float(rows.error[row]),
                allowed=float(rows.allowed[row]),
                status=STATUS_WORDS[rows.status[row]],
                verdict=self.verdict_of(row),
                metrics=self.measured.pairs.get(row),
                message=self.measured.unreadable.get(row, ""),
                lost=next(
                    (
                        word
                        for word, lost in zip(("target", "golden"), self.measured.lost, strict=True)
                        if row in lost
                    ),
                    "",
                ),
            )

    def verdict_of(self, row: int) -> str:
        """Verdict of the call a row belongs to: same, noise, origin, receiver, amplifier,
        structural, unknown.
        """
        return self.verdicts(np.array([row], dtype=np.int64))[0]

    def verdicts(self, rows: np.ndarray[Any, np.dtype[np.int64]]) -> list[str]:
        """The same for many rows."""
        target, golden = self.rows.target_call[rows], self.rows.golden_call[rows]
        codes = np.where((target < 0) | (golden < 0), VERDICTS.index("structural"), 0)
        both = codes == 0
        codes[both] = self._verdicts[target[both]]
        origins = np.isin(target, list(self._origins[0])) | np.isin(golden, list(self._origins[1]))
        words = [VERDICTS[code] for code in codes.tolist()]
        return [
            "origin" if origin else word
            for origin, word in zip(origins.tolist(), words, strict=True)
        ]

    @cached_property
    def _origins(self) -> tuple[set[int], set[int]]:
        return {cause.target for cause in self.causes if cause.kind != "missing"}, {
            cause.golden for cause in self.causes if cause.kind == "missing"
        }

    @cached_property
    def _verdicts(self) -> np.ndarray[Any, np.dtype[np.int8]]:
        """Code of each target call's verdict, as in VERDICTS, from the status of its outputs."""
        rows, codes = self.rows, np.zeros(len(self.pairing.target.calls), dtype=np.int8)
        chosen = np.flatnonzero((rows.target_call >= 0) & rows.output)
        np.maximum.at(codes, rows.target_call[chosen], _SEVERITY[rows.status[chosen]])
        amplified = self.measures.exceeds & (codes == VERDICTS.index("receiver"))
        codes[amplified] = VERDICTS.index("amplifier")
        return codes

    def _repr_html_(self) -> str:
        return _html(self)


def _html(comparison: Comparison) -> str:
    """A comparison as a cell of a notebook shows it: the verdict in one sentence and the rows that
    are furthest apart, escaped.
    """
    finding = comparison.first()
    if finding is None:
        otherwise = (
            "two different models"
            if comparison.document.summary["two_models"]
            else "no difference found in what could be compared"
        )
        sentence = "the runs agree" if comparison.document.complete else otherwise
    else:
        sentence = (
            f"{finding.kind} in step {finding.step}: {finding.call} ({finding.op}): "
            f"{'; '.join(finding.reasons)}"
        )
    rows = "".join(_row(detail) for detail in comparison.worst(ROWS))
    heads = "".join(f"<th>{head}</th>" for head in _HEADS)
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>" if rows else ""
    warned = "".join(
        f"<p>warning: {escape(line)}</p>" for line in comparison.document.summary["warnings"]
    )
    return f"<p><b>opscope compare</b> {escape(sentence)}</p>{warned}{table}"


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
