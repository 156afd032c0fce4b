# SPDX-License-Identifier: Apache-2.0
"""Two verdicts side by side: faults are the same by what and where they are, not by their step."""

from __future__ import annotations

from pathlib import Path

import torch

import opscope
from opscope.run.finding import Document, Finding
from opscope.scan.summary import beside_earlier


def document(*findings: Finding) -> Document:
    return Document(
        opscope="0",
        verb="scan",
        verdict="found" if findings else "clean",
        findings=findings,
        summary={"steps": 2},
    )


def test_what_is_gone_what_stays_and_what_is_new(tmp_path: Path) -> None:
    with opscope.record(tmp_path / "run"):
        torch.ones(2).add(1)
    stays = Finding(kind="overflow-origin", op="aten::mm.default", step=3, source="a.py:1")
    later = Finding(kind="overflow-origin", op="aten::mm.default", step=5, source="a.py:1")
    gone = Finding(kind="replay-mismatch", op="aten::bmm.default", source="a.py:2")
    new = Finding(kind="crash", op="aten::add.Tensor", source="a.py:3")
    earlier = opscope.open_run(tmp_path / "run")
    found = beside_earlier(document(later, new), document(gone, stays), earlier)
    assert found["gone"] == ["step 0 aten::bmm.default a.py:2"]
    assert found["still"] == ["step 5 aten::mm.default a.py:1"]
    assert found["new"] == ["step 0 aten::add.Tensor a.py:3"]
    assert (found["run"], found["verdict"], found["steps"]) == (str(tmp_path / "run"), "found", 2)
