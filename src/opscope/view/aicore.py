# SPDX-License-Identifier: Apache-2.0
"""AI Core errors as the page shows them: verdicts, the sections of info.txt, and a map of the
addresses of arguments against allocations and faults.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.ascend.addresses import BAD
from opscope.ascend.evidence import AddressesPart, part, parts
from opscope.ascend.verdict import Verdict
from opscope.report.aicore_text import code_of, info_text, sections_of
from opscope.view.page import page

if TYPE_CHECKING:
    from opscope.run.finding import Document, Finding


class Span(msgspec.Struct, frozen=True):
    """Something in memory: an argument, an allocation or a faulting address, from start to end."""

    kind: str
    label: str
    start: int
    end: int
    status: str = ""
    bad: bool = False
    text: str = ""


def aicore_page(document: Document) -> str:
    """The errors as one HTML file that needs nothing else."""
    made = {
        "run": {"views": ["aicore"], "path": ", ".join(document.runs), "command": []},
        "aicore": aicore_document(document),
        "names": {},
    }
    text = "\n\n".join(info_text(finding) for finding in document.findings)
    text = text or str(document.summary.get("text", "no AI Core error"))
    return page(made, title="opscope aicore", text=text)


def aicore_document(document: Document) -> dict[str, Any]:
    """Of each error what it is, why, and where in memory."""
    return {
        "text": document.summary.get("text", ""),
        "warnings": list(document.summary.get("warnings", ())),
        "errors": [_error(finding) for finding in document.findings],
    }


def _error(finding: Finding) -> dict[str, Any]:
    return {
        "op": finding.op,
        "call": finding.call,
        "reasons": [[code_of(finding, reason), reason] for reason in finding.reasons],
        "verdicts": [
            {name: getattr(verdict, name) for name in ("text", "confidence", "grounds", "advice")}
            for verdict in parts(finding, Verdict)
        ],
        "sections": [[title, list(rows)] for title, rows in sections_of(finding)],
        "map": address_map(list(spans_of(part(finding, AddressesPart) or AddressesPart()))),
    }


def spans_of(addresses: AddressesPart) -> Iterator[Span]:
    """What is known of memory from the evidence of addresses."""
    seen = set()
    for check in addresses.checks:
        start = 0 if check.address is None else int(check.address, 16)
        if check.allocation is not None and check.allocation not in seen:
            seen.add(check.allocation)
            begin, size = check.allocation
            yield Span("allocation", f"{size} B", begin, begin + size)
        if start:  # an argument that is empty has the address 0
            yield Span(
                "argument",
                check.tensor,
                start,
                start + max(1, check.size or 1),
                check.status,
                check.status in BAD,
                check.text,
            )
    for owner in addresses.owners:
        start = int(owner.address, 16)
        yield Span("fault", owner.source, start, start + 1, text=owner.text)


def address_map(spans: Sequence[Span]) -> list[dict[str, Any]]:
    """Spans with the share of a line at which each begins and how wide it is, 0 to 1.

    Addresses lie far apart: between two borders the line grows by the logarithm of the distance, so
    that order and overlap are true and lengths are not.
    """
    borders = sorted({border for span in spans for border in (span.start, span.end)})
    widths = [math.log2(1 + high - low) for low, high in pairwise(borders)]
    whole = sum(widths) or 1.0
    at = dict(zip(borders, accumulate(widths, initial=0.0), strict=False))
    return [
        {
            **msgspec.structs.asdict(span),
            "start": hex(span.start),
            "end": hex(span.end),
            "left": at[span.start] / whole,
            "width": (at[span.end] - at[span.start]) / whole,
        }
        for span in spans
    ]
