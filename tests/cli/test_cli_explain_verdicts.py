# SPDX-License-Identifier: Apache-2.0
"""`opscope explain` knows every reason that verdicts print, of crashes, of ranks and of
differences.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.compare_zoo import compare_faults
from tests.questions.builder import Builder, state
from tests.told_reasons import unexplained

import opscope
from opscope.cli.explain import meanings
from opscope.judge.reasons import CRASHES, ORIGINS, PARTINGS, RANKS, reason_in
from opscope.run.finding import Finding
from opscope.scan.api import scan

SOURCE = Path(opscope.__file__).parent
MODULES = [
    *(SOURCE / "scan" / f"{name}.py" for name in ("crashes", "ended_ranks", "exchanges")),
    *(SOURCE / "scan" / f"{name}.py" for name in ("peers", "replicas", "origins", "row_crossings")),
    *(SOURCE / "scan" / f"{name}.py" for name in ("gradients", "equal_calls", "one_program")),
    *(SOURCE / "scan" / f"{name}.py" for name in ("float_status", "summary")),
    SOURCE / "scan" / "training" / "lost_updates.py",
    SOURCE / "scan" / "training" / "unset_state.py",
    *(SOURCE / "compare" / "tell" / f"{name}.py" for name in ("findings", "drifting", "reference")),
    *sorted((SOURCE / "compare" / "cause").glob("*.py")),
    *(SOURCE / "questions" / f"{name}.py" for name in ("compiled_nodes", "arguments", "findings")),
    *(SOURCE / "judge" / f"{name}.py" for name in ("agreement", "replayed", "overflow")),
]
# Pieces of sentences, and what warnings say: no reason of a finding by itself.
PIECES = {
    "record with --sync, which makes launches blocking, to know",
    " with exit code 7",
    " of signal 7",
    "7; of 7 7 7 7",
    "7, which none of these is by its name",
    "7: 7",
    "7; 7",
    "rank7 7",
    "exit code 7",
    "77: in 7 mode 7, which train it together",
    "this call77",
    "only 7 runs 7",
    "7 calls 7",
    "7 7 in target, 7 in golden",
    "7 (7)",
    "7 tensor7",
    "its default",
    "opscope run --check",
    "7 in step 7",
    "rank 7: 7",
    "rank 7: 77",
    "time 7 of 7 that this line does it; the run knows of no steps",
    "step 7",
    "7 to 7",
}
WARNED = (
    "--noise-run: ",
    "calls that differ from golden by no more than rounding takes the noise run are left out",
    "ranks hold parameters in parts of one flat tensor",
    ", as runs of other degrees do",
    "the two draw other random numbers in ",
    "the two show nothing that is in both",
    "the two are written differently, and {} not recorded on both sides",
    "{} that the first step finds {} not golden's",
    "; of 7 at 7 7",
    "7 takes its means over the part of a batch",
    "differ from golden by no more than golden itself errs against the reference",
    "differ because golden is the side that is off",
    "cannot be judged by the reference: ",
    "77: these calls 7",
    "the reference judged ",
    "7: the program waited 7 s for the disk; ",
    "7 leaps from 7 in step 7 to 7 in step 7",
    "; it began in step 7: ",
)
PLAIN = {
    "weight perturbed",
    "swapped operands",
    "dropout seed",
    "missing residual",
    "extra call",
}
RAISES = """
import torch
torch.nn.Linear(3, 4)(torch.ones(2, 3)) @ torch.ones(5, 6)
"""


def written(path: Path) -> Iterator[ast.expr | None]:
    """What the functions of a module yield, return, append or call words and reasons."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Yield | ast.Return | ast.AugAssign):
            yield node.value
        elif isinstance(node, ast.Assign):
            names = [getattr(target, "id", "") for target in node.targets]
            if any(name in {"words", "reasons"} or name.isupper() for name in names):
                yield node.value
        elif isinstance(node, ast.keyword) and node.arg in {"words", "reasons"}:
            yield node.value
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "append":
            yield from node.args


def texts(value: ast.expr | None) -> Iterator[str]:
    """The sentences of an expression; what they put in is "7"."""
    if isinstance(value, ast.JoinedStr):
        yield "".join(
            str(part.value) if isinstance(part, ast.Constant) else "7" for part in value.values
        )
    elif isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    elif isinstance(value, ast.Tuple | ast.List):
        for each in value.elts:
            yield from texts(each)
    elif isinstance(value, ast.Dict):
        for each in value.values:
            yield from texts(each)
    elif isinstance(value, ast.IfExp):
        yield from texts(value.body)
        yield from texts(value.orelse)
    elif isinstance(value, ast.BinOp):
        yield from texts(value.left)


def reasons_of(path: Path) -> set[str]:
    found = {text for value in written(path) for text in texts(value)}
    return {
        text
        for text in found
        if " " in text.strip()
        and text not in PIECES
        and not text.startswith(WARNED)
        and not re.search(r"\n|SELECT|c10d%", text)
    }


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_every_reason_that_is_written_is_known(path: Path) -> None:
    assert sorted(text for text in reasons_of(path) if reason_in(text) is None) == []


def test_the_reasons_of_the_tables_are_written_somewhere() -> None:
    used = {reason_in(text) for path in MODULES for text in reasons_of(path)}
    known = CRASHES | RANKS | ORIGINS | PARTINGS
    source = " ".join(
        text
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant | ast.JoinedStr)
        for text in texts(node)
    )
    assert len(used & set(known)) > 50
    for reason in set(known) - used - {"…Error: …", "…Exception: …"}:
        part = max(reason.split("…"), key=len).strip()
        assert part in source, reason


def test_a_reason_that_is_not_in_the_tables_is_seen() -> None:
    told = Finding(kind="crash", reasons=("it was Tuesday", "the process died in this call"))
    assert unexplained([told]) == ["it was Tuesday"]


@pytest.mark.parametrize(
    "fault",
    [fault for fault in compare_faults.FAULTS if fault.name in PLAIN],
    ids=lambda fault: fault.name,
)
def test_the_reasons_why_two_runs_part_are_known(
    fault: compare_faults.Fault, tmp_path: Path
) -> None:
    compare_faults.train({**fault.both, "to": tmp_path / "golden"})
    compare_faults.train({**fault.both, **fault.change, "to": tmp_path / "target"})
    document = opscope.compare(tmp_path / "target", tmp_path / "golden").document
    assert any(finding.reasons for finding in document.findings)
    assert unexplained(document.findings) == []


@pytest.mark.parametrize(
    ("call", "end", "wanted"),
    [
        ({"error": "unfinished"}, {"exit_code": 139, "signal": 11}, "the process died in this"),
        ({"error": "unfinished"}, {"exit_code": 3}, "the process died in this call"),
        ({"error": "unfinished"}, {"exit_code": 130, "idle": 60.0}, "this call had not returned"),
        ({"error": "ValueError: no such axis"}, {"exit_code": 1}, "…Error: …"),
        ({"error": "RuntimeError: CUDA error: gone"}, {"exit_code": 1}, "a device error that was"),
    ],
)
def test_the_reasons_of_crashes_are_known(
    call: dict[str, Any], end: dict[str, Any], wanted: str
) -> None:
    rows = Builder()
    rows.call("mul", [state(1)], [state(2)])
    rows.call("mm", [state(2)], [], **call)
    rows.ends(0, **end)
    (finding,) = scan(rows.run()).findings
    assert finding.kind == "crash"
    assert unexplained([finding]) == []
    found = [meaning.code for reason in finding.reasons for meaning in meanings(reason)]
    assert any(code.startswith(wanted) for code in found), found


@pytest.mark.zoo
def test_what_a_program_that_raised_prints_is_known(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(RAISES)
    command = [sys.executable, "-m", "opscope", "run", "-o", "run", "--", sys.executable]
    done = subprocess.run([*command, "train.py"], cwd=tmp_path, capture_output=True, timeout=300)
    assert done.returncode == 1, done.stderr
    (finding,) = scan(opscope.open_run(str(tmp_path / "run"))).findings
    assert (finding.kind, finding.op) == ("crash", "aten::mm.default")
    assert unexplained([finding]) == []
