# SPDX-License-Identifier: Apache-2.0
"""A verdict or a comparison as a notebook shows it: what was found as HTML that needs no script,
the picture of its path, and the page of `opscope report` in a frame of its own.

A notebook that is not trusted keeps text, tables and the picture, and drops the frame.
"""

from __future__ import annotations

import base64
from html import escape
from typing import TYPE_CHECKING, Any

from opscope.compare.tell.comparison import Comparison
from opscope.errors import OpscopeError
from opscope.view.comparison import Compared
from opscope.view.documents import Documents
from opscope.view.figure import verdict_figure
from opscope.view.page import page

if TYPE_CHECKING:
    from opscope.run.finding import Document

MOST_PAGE = 4 << 20  # characters of a page that a notebook is burdened with
HEIGHT = 640  # pixels


def comparison_html(comparison: Comparison) -> str:
    """A comparison in a notebook."""
    document = comparison.document
    compared = [Compared(comparison, document)]
    documents = Documents(comparison.pairing.target.run, document, compared=compared)
    return _html(comparison._repr_html_(), documents, " beside ".join(document.runs))


def document_html(document: Document) -> str:
    """The document of a scan in a notebook; without its run, what it says alone."""
    from opscope.formats.registry import open_run

    text = document._repr_html_()
    if document.verb not in {"scan", "run"} or len(document.runs) != 1:
        return text
    try:
        return _html(text, Documents(open_run(document.runs[0]), document), document.runs[0])
    except (OpscopeError, OSError):  # the run has gone since
        return text


def _html(text: str, documents: Documents, title: str) -> str:
    whole = documents.whole()
    picture = verdict_figure(whole["verdict"], whole["calls"], whole["names"])
    return text + _picture(picture) + _frame(whole, title)


def _picture(svg: str) -> str:
    """As an image: what stands in it is no style and no script of the notebook's."""
    data = base64.b64encode(svg.encode()).decode()
    return f'<p><img alt="the path of the finding" src="data:image/svg+xml;base64,{data}"></p>'


def _frame(whole: dict[str, Any], title: str) -> str:
    """The page, which may run its own scripts and reach nothing of the notebook."""
    text = page(whole, title=f"opscope {title}", text="")
    if len(text) > MOST_PAGE:
        return "<p>opscope report writes its page into a file; it is too large for a cell</p>"
    return (
        '<iframe sandbox="allow-scripts" title="opscope" '
        f'style="width:100%;height:{HEIGHT}px;border:1px solid #c9ced6;border-radius:8px" '
        f'srcdoc="{escape(text, quote=True)}"></iframe>'
    )
