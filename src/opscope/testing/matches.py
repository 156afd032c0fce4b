# SPDX-License-Identifier: Apache-2.0
"""A comparison as an assertion, for tests of models.

def test_refactoring_changed_nothing(tmp_path):
    with opscope.record(tmp_path / "run"):
        train()
    opscope.testing.assert_matches(tmp_path / "run", "golden/run")
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opscope.compare.api import Policy
    from opscope.run.protocol import Run

SHOWN = 5


def assert_matches(
    run: Run | str | os.PathLike[str],
    golden: Run | str | os.PathLike[str],
    *,
    policy: Policy | None = None,
    structure: bool = True,
) -> None:
    """Raise AssertionError, naming the operator where they part, unless a run agrees with its
    golden.

    A comparison that is incomplete does not pass. structure: calls that only one side has fail too,
    though no value changed. Raises FormatError for what cannot be read.
    """
    __tracebackhide__ = True
    from opscope.compare.api import compare

    document = compare(run, golden, policy).document
    findings = [
        finding
        for finding in document.findings
        if structure or finding.kind != "structural-difference"
    ]
    if findings:
        told = "\n".join(
            f"  {finding.kind} in step {finding.step}: {finding.call} "
            f"({finding.op}){f' at {finding.source}' if finding.source else ''}: "
            f"{'; '.join(finding.reasons)}"
            for finding in findings[:SHOWN]
        )
        more = f"\n  and {len(findings) - SHOWN} more" if len(findings) > SHOWN else ""
        raise AssertionError(f"{document.runs[0]} does not match {document.runs[1]}:\n{told}{more}")
    if not document.complete:
        raise AssertionError(
            f"{document.runs[0]} cannot be compared whole with {document.runs[1]}: "
            f"{'; '.join(document.summary['warnings'])}"
        )
