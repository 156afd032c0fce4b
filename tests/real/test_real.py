# SPDX-License-Identifier: Apache-2.0
"""Kernels that ship wrong are named by `opscope run --check` at its default budget; where a release
has mended one, nothing is said.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

import opscope
from tests.real.table import (
    FORMULAS,
    MISCOMPILED,
    REAL,
    SILENT,
    TOGETHER,
    UNNAMED,
    UNPUBLISHED,
    Miscompiled,
    Real,
)

pytestmark = pytest.mark.zoo
PROGRAMS = Path(__file__).parent / "programs"


HEALTHY = Path(__file__).parent / "healthy"


def checked(tmp_path: Path, *programs: Path, budget: str = "20%") -> list[dict[str, Any]]:
    """The findings of programs that are run one after the other in one process."""
    words = [
        sys.executable,
        "-m",
        "opscope",
        "run",
        "--check",
        "--budget",
        budget,
        "-o",
        str(tmp_path / "run"),
        "--json-file",
        str(tmp_path / "run.json"),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    started = [str(program) for program in programs]
    if len(programs) > 1:
        started.insert(0, str(PROGRAMS.with_name("together.py")))
    done = subprocess.run(
        [*words, "--", sys.executable, *started],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode in {0, 1}, done.stderr
    found: list[dict[str, Any]] = json.loads((tmp_path / "run.json").read_text())["findings"]
    return found


def mended(real: Real) -> bool:
    if real.mended is None or callable(real.mended):
        return real.mended is not None and real.mended()
    release = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    return release >= tuple(int(part) for part in real.mended.split("."))


@pytest.mark.parametrize("real", [*REAL, *UNPUBLISHED], ids=lambda real: real.program)
def test_a_kernel_that_ships_wrong_is_named(real: Real, tmp_path: Path) -> None:
    findings = checked(tmp_path, program_at(real.program))
    named = [bare(finding["op"]) for finding in findings if finding["kind"] == "replay-mismatch"]
    assert named[:1] == ([] if mended(real) else [real.op])
    assert set(named) <= {real.op, real.also}
    if real.overflow and not mended(real):
        assert real.op in {bare(each["op"]) for each in findings}
    if named:
        call = next(each["call"] for each in findings if each["kind"] == "replay-mismatch")
        assert fails_alone(tmp_path, call)


def fails_alone(tmp_path: Path, call: str, *, run: Path | None = None) -> bool:
    """Whether the call that was named fails when it is cut out and made alone."""
    words = [sys.executable, "-m", "opscope", "repro", str(run or tmp_path / "run"), call]
    case = tmp_path / "case"
    cut = subprocess.run([*words, "-o", str(case)], capture_output=True, text=True, timeout=240)
    alone = subprocess.run(
        [sys.executable, str(case / "repro.py")], capture_output=True, text=True, timeout=240
    )
    assert cut.returncode == alone.returncode, cut.stdout + alone.stdout
    return alone.returncode == 1


def test_many_that_ship_wrong_are_named_each_in_its_file(tmp_path: Path) -> None:
    programs = (*TOGETHER, *FORMULAS, *SILENT)
    findings = checked(tmp_path, *(program_at(real.program) for real in programs))
    named = {(program_of(each), bare(each["op"])) for each in findings if of_kernel(each)}
    assert named == {(real.program, real.op) for real in TOGETHER if not mended(real)}
    origins = {
        (program_of(each), bare(each["forward"]["op"]))
        for each in findings
        if each["kind"] == "overflow-origin" and each["forward"]
    }
    assert origins == {(real.program, real.op) for real in FORMULAS if not mended(real)}
    for program in ("bytes_below_256", "gammainc_missing", "shifted_window"):
        call = next(
            each["call"] for each in findings if of_kernel(each) and program_of(each) == program
        )
        assert fails_alone(tmp_path / program, call, run=tmp_path / "run")


def test_programs_that_only_look_wrong_are_not_accused(tmp_path: Path) -> None:
    assert checked(tmp_path, *sorted(HEALTHY.glob("*.py")), budget="all") == []


def of_kernel(finding: dict[str, Any]) -> bool:
    return finding["kind"] == "replay-mismatch"


def program_at(name: str) -> Path:
    return PROGRAMS / f"{name}.py"


def program_of(finding: dict[str, Any]) -> str:
    return Path(finding["source"].rpartition(":")[0]).stem


def bare(op: str) -> str:
    return op.rpartition(".")[0]


@pytest.mark.parametrize("real", UNNAMED, ids=lambda real: real.program)
def test_one_that_no_check_names_is_the_origin_of_its_overflow(real: Real, tmp_path: Path) -> None:
    if mended(real):
        pytest.skip("this torch has mended it")
    assert real.op in {bare(each["op"]) for each in checked(tmp_path, program_at(real.program))}


@dataclass(frozen=True)
class Once:
    """Checked runs of programs, each made when it is first asked for."""

    folder: Path
    found: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def findings(self, name: str) -> list[dict[str, Any]]:
        if name not in self.found:
            (self.folder / name).mkdir()
            self.found[name] = checked(self.folder / name, program_at(name))
        return self.found[name]

    def run(self, name: str) -> Path:
        self.findings(name)
        return self.folder / name / "run"


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    return Once(tmp_path_factory.mktemp("once"))


@pytest.mark.skipif(
    not torch.__version__.startswith("2.13."), reason="what inductor makes differs by release"
)
@pytest.mark.parametrize("real", MISCOMPILED, ids=lambda real: real.program)
def test_what_inductor_makes_otherwise_is_named(
    real: Miscompiled, once: Once, tmp_path: Path
) -> None:
    findings = once.findings(real.program)
    found = [each for each in findings if each["kind"] == "compiled-mismatch"]
    assert found
    assert (found[0]["phase"], found[0]["confidence"]) == (real.phase, "proven")
    (told,) = [words for words in found[0]["reasons"] if words.startswith("so it is when only")]
    assert all(node in told for node in real.nodes)
    line = int(found[0]["source"].rpartition(":")[2])
    text = program_at(real.program).read_text(encoding="utf-8").splitlines()
    assert real.line in text[line - 1]
    assert fails_alone(tmp_path, found[0]["call"], run=once.run(real.program))


@pytest.mark.skipif(
    not torch.__version__.startswith("2.13."), reason="what inductor makes differs by release"
)
@pytest.mark.parametrize(
    "real",
    [
        each
        for each in MISCOMPILED
        if each.program in {"compiled_int8_minimum", "compiled_uint8_abs"}
    ],
    ids=lambda real: real.program,
)
def test_beside_the_same_program_without_compiler_the_line_is_named(
    real: Miscompiled, once: Once, tmp_path: Path
) -> None:
    program = program_at(real.program)
    words = [sys.executable, "-m", "opscope", "run", "-o", str(tmp_path / "eager")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_COMPILE_DISABLE": "1"}
    subprocess.run([*words, "--", sys.executable, str(program)], env=environment, check=True)
    first = opscope.compare(once.run(real.program), tmp_path / "eager").document.findings[0]
    line = int(str(first.source).rpartition(":")[2])
    assert real.line in program.read_text(encoding="utf-8").splitlines()[line - 1]
    assert any(reason.startswith("so it is when only") for reason in first.reasons)


@pytest.mark.skipif(
    not torch.__version__.startswith("2.13."), reason="what inductor makes differs by release"
)
def test_a_search_over_what_is_compiled_ends_at_the_node(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "opscope", "bisect", "--compile", "-o", str(tmp_path / "search")]
    program = PROGRAMS / "compiled_shift.py"
    done = subprocess.run(
        [*words, "--metric", "name-regex(^([0-9.]+)$)<375", "--", sys.executable, str(program)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 1, done.stderr
    assert "clone of graph_0_0" in done.stdout
    assert "compiled_shift.py:9" in done.stdout
    assert "what the backend makes of the decomposed graph" in done.stdout
