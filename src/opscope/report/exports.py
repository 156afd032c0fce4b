# SPDX-License-Identifier: Apache-2.0
"""Findings in the file formats of other tools, by the ending of the file's name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from opscope.errors import UsageError
from opscope.report.json import json_text
from opscope.report.junit import findings_junit
from opscope.report.sarif import sarif_text
from opscope.run.finding import Document

ENDINGS: dict[str, Callable[[Document, Path], str]] = {
    ".sarif": sarif_text,
    ".xml": lambda document, _: findings_junit(document),
    ".json": lambda document, _: json_text(document) + "\n",
}


def check_ending(path: Path) -> None:
    """UsageError for a file whose ending names no format; to be asked before anything is read."""
    if path.suffix not in ENDINGS:
        raise UsageError(f"-o {path}: write {', '.join(ENDINGS)} (SARIF, JUnit, the document)")


def export(document: Document, path: Path, *, here: Path) -> None:
    """Write the document's findings to a file."""
    path.write_text(ENDINGS[path.suffix](document, here), encoding="utf-8")
