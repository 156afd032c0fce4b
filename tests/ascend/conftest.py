# SPDX-License-Identifier: Apache-2.0
"""Reading logs and collections for the tests of ascend."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opscope.ascend.fault import Fault
from opscope.ascend.log import read_text
from opscope.cli import main


@pytest.fixture
def faults() -> Callable[[str], tuple[Fault, ...]]:
    """Errors of a text."""
    return lambda text: read_text(text.encode("utf-8", "surrogateescape"), "plog-1.log").faults()


@pytest.fixture
def aicore(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, Any]]]:
    """`opscope aicore --json`: exit code and document."""

    def run(*words: str | Path) -> tuple[int, dict[str, Any]]:
        code = main(["aicore", *map(str, words), "--json"])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else {"stderr": err}

    return run


def part(finding: dict[str, Any], name: str) -> dict[str, Any]:
    """One part of a finding's evidence."""
    found = [record for record in finding["evidence"] if record["part"] == name]
    assert found, f"no {name} among {[record['part'] for record in finding['evidence']]}"
    return found[0]
