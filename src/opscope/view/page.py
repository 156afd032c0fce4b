# SPDX-License-Identifier: Apache-2.0
"""One HTML file from documents, style and modules: nothing else is loaded, and nothing else may
run.

The modules lie in the page as data: URLs behind an import map. The page's Content-Security-Policy
names the digest of every script and style in it, and the import map those of its modules
(https://www.w3.org/TR/CSP3/#external-hash), so whatever a run may smuggle in is no script.
Documents lie in the page as compressed bytes in base64: none of their characters is markup.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

import msgspec

from opscope.report.json import plain
from opscope.run.printable import printable

STATIC = files("opscope.view") / "static"
VENDORED = {
    "preact": "vendor/preact.mjs",
    "preact/hooks": "vendor/hooks.mjs",
    "htm": "vendor/htm.mjs",
}
MODULES = (
    "app",
    "words",
    "source",
    "parts",
    "chart",
    "verdict",
    "call",
    "timeline",
    "model",
    "ranks",
    "training",
    "compare",
    "aicore",
)
STYLES = ("vendor/uPlot.min.css", "page.css")
CHARTS = "vendor/uPlot.iife.min.js"
ENTRY = 'import "opscope/app";'


def page(documents: Mapping[str, Any], *, title: str, text: str, live: bool = False) -> str:
    """The page: documents by name, and what is read where no script runs.

    A live page holds the first documents only and asks its server for the others.
    """
    scripts, style = _scripts(), _style()
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" '
        f'content="{escape(policy(scripts, style, live=live))}">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{_e(title)}</title><style>{style}</style></head>\n"
        f'<body><div id="page"><main class="plain"><pre>{_e(text)}</pre></main></div>\n'
        f'<script type="text/plain" id="documents" data-live="{int(live)}">{packed(documents)}'
        f"</script>\n<script>{scripts[0]}</script>\n"
        f'<script type="importmap">{scripts[1]}</script>\n'
        f'<script type="module">{scripts[2]}</script>\n</body></html>\n'
    )


def live_page(*, title: str, runs: Sequence[str]) -> str:
    """The page that asks its server for documents; runs are the names of all that it serves."""
    said = "This page needs JavaScript: it asks opscope serve for what it shows."
    return page({"runs": list(runs)}, title=title, text=said, live=True)


@cache
def live_policy() -> str:
    """The policy of a live page, for the header of every answer."""
    return policy(_scripts(), _style(), live=True) + "; frame-ancestors 'none'"


def _scripts() -> list[str]:
    return [_text(CHARTS), json.dumps(import_map(_modules())), ENTRY]


def _style() -> str:
    return "\n".join(_text(name) for name in STYLES)


def packed(documents: Mapping[str, Any]) -> str:
    """Documents as JSON, gzip and base64; the same documents give the same text."""
    text = msgspec.json.encode(plain(documents))
    return base64.b64encode(gzip.compress(text, 9, mtime=0)).decode()


def policy(scripts: list[str], style: str, *, live: bool) -> str:
    """The page's Content-Security-Policy: these scripts, the modules, this style, and no more; a
    live one may ask its own server.
    """
    allowed = [*scripts, *_modules().values()]
    asked = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; script-src {' '.join(_quoted(text) for text in allowed)}; "
        f"style-src {_quoted(style)}; img-src data:; connect-src {asked}; base-uri 'none'; "
        "form-action 'none'"
    )


def import_map(modules: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Where each module is, and the digest that it must have."""
    places = {
        name: "data:text/javascript;base64," + base64.b64encode(text.encode()).decode()
        for name, text in modules.items()
    }
    return {
        "imports": places,
        "integrity": {places[name]: digest(text) for name, text in modules.items()},
    }


def digest(text: str) -> str:
    """A digest as CSP and integrity write it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _quoted(text: str) -> str:
    return f"'{digest(text)}'"


def _modules() -> dict[str, str]:
    own = {f"opscope/{name}": _text(f"{name}.js") for name in MODULES}
    return {**{name: _text(path) for name, path in VENDORED.items()}, **own}


def _text(path: str) -> str:
    return (STATIC / path).read_text(encoding="utf-8")


def _e(text: str) -> str:
    return escape("\n".join(printable(line) for line in text.split("\n")), quote=True)
