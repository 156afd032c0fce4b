# SPDX-License-Identifier: Apache-2.0
"""The reasons of findings that `opscope explain` does not know, for tests that have verdicts."""

from __future__ import annotations

from collections.abc import Iterable

from opscope.judge.reasons import reason_in
from opscope.run.finding import Finding


def unexplained(findings: Iterable[Finding]) -> list[str]:
    """Each reason that stands in no table, as it is printed."""
    return [
        reason for finding in findings for reason in finding.reasons if reason_in(reason) is None
    ]
