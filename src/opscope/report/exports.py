# SPDX-License-Identifier: Apache-2.0
"""Findings in the formats of other tools: files by the ending of their names, and annotations of
GitHub Actions.

SARIF 2.1.0 (OASIS, 2020), which code scanning reads, has a rule for each kind and a result for each
finding. GitHub Actions shows what workflow commands say at its line of a pull request; their
escapes are those of the runner's own toolkit (actions/toolkit, packages/core, command.ts): % and
line ends in messages, : and , in properties too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from opscope.errors import UsageError
from opscope.report.json import json_text
from opscope.report.junit import findings_junit
from opscope.run.finding import KINDS, Document, Finding
from opscope.run.printable import printable

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
# How grave a finding of some confidence is, in the words of SARIF and of Actions.
LEVELS = {"proven": "error", "likely": "warning", "suspected": "note"}
COMMANDS = {**LEVELS, "suspected": "notice"}


def check_ending(path: Path) -> None:
    """UsageError for a file whose ending names no format; to be asked before anything is read."""
    if path.suffix not in ENDINGS:
        raise UsageError(f"-o {path}: write {', '.join(ENDINGS)} (SARIF, JUnit, the document)")


def export(document: Document, path: Path, *, here: Path) -> None:
    """Write the document's findings to a file."""
    path.write_text(ENDINGS[path.suffix](document, here), encoding="utf-8")


def annotation_lines(document: Document, here: Path) -> Iterator[str]:
    """One line for each finding, and a warning for an incomplete run."""
    for finding in document.findings:
        file_and_line = place_of(finding, here)
        at = (
            f"file={_property(file_and_line[0])},line={file_and_line[1]},"
            if file_and_line is not None
            else ""
        )
        level = COMMANDS.get(finding.confidence, "warning")
        title = _property(f"opscope: {finding.kind}")
        yield f"::{level} {at}title={title}::{_message(finding.line())}"
    if not document.complete:
        yield "::warning title=opscope::the run is incomplete"


def _message(text: str) -> str:
    return printable(text).replace("%", "%25")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")


def sarif_text(document: Document, here: Path) -> str:
    """The document as one SARIF log; files below here are named relative to it."""
    rules = [
        {"id": kind, "shortDescription": {"text": text}, "help": {"text": f"next: {following}"}}
        for kind, (text, following) in KINDS.items()
    ]
    warnings = [str(line) for line in document.summary.get("warnings", ())]
    run = {
        "tool": {"driver": {"name": "opscope", "version": document.opscope, "rules": rules}},
        "invocations": [
            {
                "executionSuccessful": document.complete,
                "toolExecutionNotifications": [
                    {"level": "warning", "message": {"text": printable(line)}} for line in warnings
                ],
            }
        ],
        "results": [_result(finding, here) for finding in document.findings],
    }
    return json_text({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}) + "\n"


def _result(finding: Finding, here: Path) -> dict[str, Any]:
    location: dict[str, Any] = {}
    file_and_line = place_of(finding, here)
    if file_and_line is not None:
        file, line = file_and_line
        uri = f"file://{quote(file)}" if file.startswith("/") else quote(file)
        location["physicalLocation"] = {
            "artifactLocation": {"uri": uri},
            "region": {"startLine": line},
        }
    named = "/".join(printable(part) for part in (finding.module, finding.op) if part)
    if named:
        location["logicalLocations"] = [{"fullyQualifiedName": named}]
    same = "\0".join(
        map(str, (finding.kind, finding.op, finding.module, finding.phase, file_and_line))
    )
    return {
        "ruleId": finding.kind,
        "level": LEVELS.get(finding.confidence, "warning"),
        "message": {"text": printable(finding.line())},
        "locations": [location] if location else [],
        "partialFingerprints": {
            "opscope/v1": hashlib.sha256(same.encode("utf-8", "backslashreplace")).hexdigest()
        },
    }


def place_of(finding: Finding, here: Path) -> tuple[str, int] | None:
    """File, relative to here where it lies below, and line; None where the finding has none."""
    file, _, line = (finding.source or "").rpartition(":")
    if not file or not line.isascii() or not line.isdecimal() or len(line) > 9 or int(line) < 1:
        return None
    path = Path(file)
    inside = path.is_relative_to(here) and ".." not in path.parts
    return printable((path.relative_to(here) if inside else path).as_posix()), int(line)


ENDINGS: dict[str, Callable[[Document, Path], str]] = {
    ".sarif": sarif_text,
    ".xml": lambda document, _: findings_junit(document),
    ".json": lambda document, _: json_text(document) + "\n",
}
