# SPDX-License-Identifier: Apache-2.0
"""Models of the transformers package under `opscope run`, in the interpreter that
OPSCOPE_TRANSFORMERS_PYTHON names.

As a new user would: the launcher is ours, the program's interpreter is its own and needs of ours
only what recording imports.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PYTHON = os.environ.get("OPSCOPE_TRANSFORMERS_PYTHON")
NET = Path(__file__).with_name("transformers_net.py")
SOURCE = Path(__file__).parents[2] / "src"
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(PYTHON is None, reason="OPSCOPE_TRANSFORMERS_PYTHON names no interpreter"),
]


def execute(words: list[str], place: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OPSCOPE")}
    environment.update(PYTHONPATH=path, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")
    return subprocess.run(
        words, cwd=place, env=environment, capture_output=True, text=True, timeout=900, check=False
    )


def results(output: str) -> list[str]:
    """Losses and tokens; the Trainer also prints how long it took."""
    return [
        line
        for line in output.splitlines()
        if "0x" in line or "nan" in line or line.startswith("[[")
    ]


def watch(program: str, place: Path) -> dict[str, Any]:
    """Run a program alone and watched, hold the two to the same results, and return what scan
    says.
    """
    alone = execute([str(PYTHON), str(NET), program], place)
    assert alone.returncode == 0, alone.stderr
    run = place / "run"
    opscope = [sys.executable, "-m", "opscope"]
    watched = execute(
        [*opscope, "run", "-o", str(run), "--", str(PYTHON), str(NET), program], place
    )
    assert watched.returncode == 0, watched.stderr
    assert results(alone.stdout)
    assert results(watched.stdout) == results(alone.stdout)
    document: dict[str, Any] = json.loads(
        execute([*opscope, "scan", str(run), "--json"], place).stdout
    )
    assert document["complete"], document["summary"]
    return document


@pytest.mark.parametrize(
    ("program", "steps"),
    [("gpt2_healthy", 3), ("llama_healthy", 3), ("llama_generates", 6), ("trainer", 4)],
)
def test_healthy(program: str, steps: int, tmp_path: Path) -> None:
    document = watch(program, tmp_path)
    assert document["verdict"] == "clean", document["findings"]
    assert document["summary"]["steps"] == steps


@pytest.mark.parametrize(
    ("program", "op", "step", "module", "status"),
    [
        ("gpt2_overflows", "aten::addmm.default", 2, "transformer.h.1.mlp.c_fc", "0x400"),
        ("llama_overflows", "aten::mul.Tensor", 1, "model.layers.1.mlp", "0x20"),
    ],
)
def test_overflow(
    program: str, op: str, step: int, module: str, status: str, tmp_path: Path
) -> None:
    first, *others = watch(program, tmp_path)["findings"]
    line = next(
        number
        for number, text in enumerate(NET.read_text(encoding="utf-8").splitlines(), 1)
        if "loss = model(" in text
    )
    assert (first["op"], first["step"], first["module"], first["status"]) == (
        op,
        step,
        module,
        status,
    )
    assert first["phase"] == "forward"
    assert first["source"] == f"{NET}:{line}"
    assert first["evidence"][0]["reached"] == "loss"
    assert [other for other in others if other["kind"] == "overflow-origin"] == []
