# SPDX-License-Identifier: Apache-2.0
"""Every program of the zoo through the real command line: the verdict is the known one, and the
program did not notice.

Bit identity: each program prints its losses as hexadecimal floats; they are the same with and
without opscope.
"""

from __future__ import annotations

import fnmatch
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from expected import PROGRAMS, Origin, Program
from forking import Forking
from tests.told_reasons import explained

pytestmark = pytest.mark.zoo

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"


def environment(place: Path) -> dict[str, str]:
    """One thread, so that nothing but opscope can change a bit; compiled kernels are kept between
    the two runs of a program.
    """
    path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))
    kept = {key: value for key, value in os.environ.items() if not key.startswith("OPSCOPE")}
    return {
        **kept,
        "PYTHONPATH": path,
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(place / "inductor"),
        "NO_COLOR": "1",
    }


def execute(words: list[str], place: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, cwd=place, env=environment(place), capture_output=True, text=True, timeout=900
    )


def command(program: Program) -> list[str]:
    path = str(HERE / "programs" / f"{program.name}.py")
    if program.ranks == 1:
        return [sys.executable, path]
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={program.ranks}",
        path,
    ]


@pytest.fixture(scope="module")
def forking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forking]:
    process = Forking(environment(tmp_path_factory.mktemp("forking")))
    yield process
    process.close()


def without_opscope(
    program: Program, place: Path, forking: Forking
) -> subprocess.CompletedProcess[str]:
    """What compiles and what has ranks is started as it is under opscope."""
    if program.compiles or program.ranks > 1:
        return execute(command(program), place)
    return forking.execute(HERE / "programs" / f"{program.name}.py", place)


def printed(output: str, program: Program) -> list[str]:
    """The program's lines; those of several ranks come in any order."""
    lines = [line for line in output.splitlines() if line.strip()]
    return sorted(lines) if program.ranks > 1 else lines


def marked(program: Program, marker: str) -> set[str]:
    """path:line of the lines that carry the marker."""
    path = HERE / "programs" / f"{program.name}.py"
    text = path.read_text(encoding="utf-8").splitlines()
    return {
        f"{path}:{number}" for number, line in enumerate(text, 1) if line.endswith(f"# <- {marker}")
    }


def facts(finding: dict[str, Any]) -> dict[str, Any]:
    """What the table speaks of, out of a finding's JSON."""
    evidence = {key: value for entry in finding["evidence"] for key, value in entry.items()}
    kept = {
        key: finding[key]
        for key in ("rank", "step", "op", "phase", "source", "status", "confidence")
    }
    return {
        **kept,
        "module": finding["module"] or "",
        "reached": bool(evidence.get("reached")),
        "arrived": bool(evidence.get("arrived")),
    }


def differs(found: dict[str, Any], wanted: Origin, program: Program) -> list[str]:
    """The names of the facts in which a finding is not the wanted one."""
    wrong = [name for name in ("rank", "phase", "arrived") if found[name] != getattr(wanted, name)]
    wrong += [
        name
        for name in ("step", "status", "confidence", "reached")
        if getattr(wanted, name) not in (None, found[name])
    ]
    # A tensor that arrived unsound may be met by the module's own operator or on the way into it.
    wrong += [] if wanted.arrived or found["module"] == wanted.module else ["module"]
    wrong += [] if any(fnmatch.fnmatchcase(found["op"], glob) for glob in wanted.op) else ["op"]
    wrong += [] if found["source"] in marked(program, wanted.marker) else ["source"]
    return wrong


def first_of_each(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same operator on the same line in later steps, and its recomputation, is the same
    fault.
    """
    seen: set[tuple[Any, ...]] = set()
    firsts = []
    for found in findings:
        key = (
            found["rank"],
            found["op"],
            found["module"],
            found["source"],
            found["phase"].replace("recompute", "forward"),
        )
        if key not in seen:
            firsts.append(found)
        seen.add(key)
    return firsts


def complaints(program: Program, document: dict[str, Any]) -> list[str]:
    """Every way in which the answer is not the known one."""
    found = first_of_each(
        [facts(finding) for finding in document["findings"] if finding["kind"] == "overflow-origin"]
    )
    lines = []
    for place, wanted in enumerate(program.origins):
        if place >= len(found):
            lines.append(f"not found: {wanted}")
            continue
        wrong = differs(found[place], wanted, program)
        lines += (
            [f"wrong {', '.join(wrong)}: found {found[place]}, wanted {wanted}"] if wrong else []
        )
    for extra in found[len(program.origins) :]:
        if all(differs(extra, allowed, program) for allowed in program.also):
            lines.append(f"false accusation: {extra}")
    if not program.origins and document["verdict"] != "clean":
        lines.append(f"a healthy program has findings: {document['findings']}")
    return lines


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(p, id=p.name, marks=[pytest.mark.slow] if p.compiles or p.ranks > 1 else [])
        for p in PROGRAMS
    ],
)
def test_zoo(program: Program, tmp_path: Path, forking: Forking) -> None:
    if program.compiles and not (shutil.which("g++") or shutil.which("clang++")):
        pytest.skip("torch.compile needs a C++ compiler")
    alone = without_opscope(program, tmp_path, forking)
    opscope = [sys.executable, "-m", "opscope"]
    run = tmp_path / "run"
    watched = execute([*opscope, "run", "-o", str(run), "--", *command(program)], tmp_path)
    plain = answer = execute([*opscope, "scan", str(run), "--json"], tmp_path)
    if program.guarded:
        answer = execute([*opscope, "scan", str(run), "--json", "--show-hidden"], tmp_path)

    assert (alone.returncode, watched.returncode) == (program.exit_code, program.exit_code), (
        alone.stderr + watched.stderr
    )
    assert printed(watched.stdout, program) == printed(alone.stdout, program)
    assert answer.returncode == (1 if program.origins else 0), answer.stderr + answer.stdout
    document = json.loads(answer.stdout)
    assert document["complete"], document
    reasons = [reason for finding in document["findings"] for reason in finding["reasons"]]
    assert [reason for reason in reasons if not explained(reason)] == []
    assert (json.loads(plain.stdout)["summary"]["hidden"], plain.returncode) == (
        len(program.origins),
        0,
    ) or not program.guarded
    problems = complaints(program, document)
    assert not problems, "\n".join(problems)
