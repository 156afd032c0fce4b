# SPDX-License-Identifier: Apache-2.0
"""Findings as SARIF 2.1.0 (OASIS, 2020), which code scanning reads: a rule for each kind, a result
for each finding.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any
from urllib.parse import quote

from opscope.report.json import json_text
from opscope.report.places import place_of
from opscope.run.finding import KINDS, Document, Finding
from opscope.run.printable import printable

LEVELS = {"proven": "error", "likely": "warning", "suspected": "note"}
SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)


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
