# SPDX-License-Identifier: Apache-2.0
"""The same differences in the layouts of other tools, without opscope's own notes beside them."""

from __future__ import annotations

from pathlib import Path

import compare_faults
import pytest

import opscope
from opscope.cli import main

pytestmark = pytest.mark.zoo

CASES = {
    "weight perturbed": ({"perturbed": "layers.1.up.weight"}, "layers.1.up", "addmm"),
    "missing residual": ({"no_residual": True}, "layers.1", "add"),
    "wrong eps": ({"eps": 1e-3}, "layers.1.norm1", "layer_norm"),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The healthy run and each faulty one, with all values."""
    made = {}
    for name, options in {
        "golden": {},
        **{name: change for name, (change, _, _) in CASES.items()},
    }.items():
        made[name] = tmp_path_factory.mktemp("runs") / name.replace(" ", "_")
        compare_faults.train({**options, "values": "full", "to": made[name]})
    return made


def foreign(run: Path, layout: str, to: Path) -> Path:
    """A run in another tool's layout, as that tool would have left it."""
    if not to.exists():
        assert main(["convert", str(run), "-o", str(to), "--type", layout]) == 0
        for notes in to.rglob("opscope.jsonl"):
            notes.unlink()
    return to


@pytest.mark.parametrize("layout", ["msprobe", "mindspore", "cann"])
@pytest.mark.parametrize("name", CASES)
def test_names_the_operator_in_other_layouts(
    runs: dict[str, Path], tmp_path: Path, name: str, layout: str
) -> None:
    _, module, op = CASES[name]
    target, golden = (
        foreign(runs[run], layout, tmp_path / run.replace(" ", "_")) for run in (name, "golden")
    )
    document = opscope.compare(target, golden).document
    assert document.verdict == "found"
    first = document.findings[0]
    assert first.kind == "divergence-origin"
    assert op in (first.op or "")
    assert (first.module or (first.call or "").partition(":")[0]) == module
