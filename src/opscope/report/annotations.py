# SPDX-License-Identifier: Apache-2.0
"""Findings as workflow commands of GitHub Actions, which shows each at its line of a pull request.

Escapes are those of the runner's own toolkit (actions/toolkit, packages/core, command.ts): % and
line ends in messages, : and , in properties too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from opscope.report.places import place_of
from opscope.run.finding import Document
from opscope.run.printable import printable

LEVELS = {"proven": "error", "likely": "warning", "suspected": "notice"}


def annotation_lines(document: Document, here: Path) -> Iterator[str]:
    """One line for each finding, and a warning for an incomplete run."""
    for finding in document.findings:
        file_and_line = place_of(finding, here)
        at = (
            f"file={_property(file_and_line[0])},line={file_and_line[1]},"
            if file_and_line is not None
            else ""
        )
        level = LEVELS.get(finding.confidence, "warning")
        title = _property(f"opscope: {finding.kind}")
        yield f"::{level} {at}title={title}::{_message(finding.line())}"
    if not document.complete:
        yield "::warning title=opscope::the run is incomplete"


def _message(text: str) -> str:
    return printable(text).replace("%", "%25")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
