# SPDX-License-Identifier: Apache-2.0
"""The reasons of findings that `opscope explain` does not know, for tests that have verdicts."""

from __future__ import annotations

from collections.abc import Iterable

from opscope.cli.explain import meanings
from opscope.errors import UsageError
from opscope.run.finding import Finding


def unexplained(findings: Iterable[Finding]) -> list[str]:
    """Each reason that has no meaning, as it is printed."""
    return [reason for finding in findings for reason in finding.reasons if not explained(reason)]


def explained(reason: str) -> bool:
    """Whether `opscope explain` has a meaning for it."""
    try:
        return bool(meanings(reason))
    except UsageError:
        return False
