# SPDX-License-Identifier: Apache-2.0
"""No healthy program is accused of anything."""

from __future__ import annotations

import pytest
from tests.scan.healthy_guards import PROGRAMS
from tests.scan.recorder import record

from opscope.scan.api import scan


@pytest.mark.parametrize("name", PROGRAMS)
def test_clean(name: str) -> None:
    document = scan(record(PROGRAMS[name]))
    assert [(finding.call, finding.reasons) for finding in document.findings] == []
    assert document.verdict == "clean"
    assert document.complete
