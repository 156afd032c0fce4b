# SPDX-License-Identifier: Apache-2.0
"""AI Core errors as one HTML page that needs nothing else: the verdict first, then the sections of
info.txt.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from opscope.report.aicore_text import code_of, parts, sections_of
from opscope.run.finding import Document, Finding
from opscope.run.printable import printable

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;background:#fff}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}summary{cursor:pointer;font-weight:600;margin:.6rem 0}
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:#f6f8fa;padding:.7rem;border-radius:6px;font-size:13px}
.v{border-left:4px solid #d1242f;padding:.2rem .8rem;margin:.5rem 0}.suspected{border-color:#bf8700}.c{color:#57606a}
@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}pre{background:#161b22}.c{color:#8b949e}}
"""  # noqa: E501


def aicore_html(document: Document) -> str:
    """The page of a document; every text of the run is escaped."""
    body = "".join(_finding(finding, number) for number, finding in enumerate(document.findings, 1))
    body = body or f"<p>{_e(document.summary.get('text', 'no AI Core error'))}</p>"
    warnings = "".join(
        f"<p class=c>warning: {_e(text)}</p>" for text in document.summary.get("warnings", ())
    )
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport "
        'content="width=device-width">'
        f"<title>AI Core errors</title><style>{_STYLE}</style><h1>AI Core errors: "
        f"{len(document.findings)}</h1>{body}{warnings}</html>\n"
    )


def _finding(finding: Finding, number: int) -> str:
    return "".join(_pieces(finding, number))


def _pieces(finding: Finding, number: int) -> Iterator[str]:
    yield f"<h2>{number}. {_e(finding.op or 'operator not known')} {_e(finding.call or '')}</h2>"
    for reason in finding.reasons:
        yield f"<p><code>{_e(code_of(finding, reason) or '')}</code> {_e(reason)}</p>"
    for verdict in parts(finding, "verdict"):
        yield (
            f"<div class='v {_e(verdict['confidence'])}'><p>{_e(verdict['text'])} <span "
            f"class=c>{_e(verdict['confidence'])}</span></p>"
        )
        yield "<ul>"
        yield "".join(
            f"<li>{_e(text)}</li>"
            for text in (*verdict["grounds"], *(f"next: {text}" for text in verdict["advice"]))
        )
        yield "</ul></div>"
    for title, rows in sections_of(finding):
        yield (
            f"<details{' open' if title[:1] in '14' else ''}><summary>{_e(title)}"
            f"</summary><pre>{_e(chr(10).join(rows))}</pre></details>"
        )


def _e(text: object) -> str:
    return escape("\n".join(printable(row) for row in str(text).split("\n")), quote=True)
