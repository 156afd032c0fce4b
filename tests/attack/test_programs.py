# SPDX-License-Identifier: Apache-2.0
"""A program says the same bare and recorded: output, exit code, exceptions, warnings, losses to the
last bit.

A fixed sample in the tests; `make attack` holds the programs of 200 seeds
(OPSCOPE_ATTACK_SEEDS=0-200).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.oldest import IS_OLDEST

PATIENCE = 600.0  # seconds of a busy machine
ROOT = Path(__file__).parents[2]
BATCH = 10  # seeds of a process
KINDS = ("subclasses.", "modules.", "transforms.", "listening.")


def run(words: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "0",
        "COLUMNS": "80",
        "PYTHONWARNINGS": "default",
    }
    return subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=ROOT,
        env=environment,
        check=False,
    )


def held(folder: Path, *words: str) -> None:
    program = [sys.executable, "-m", "tests.attack.programs", *words]
    bare = run(program)
    recorded = run(
        [sys.executable, "-m", "opscope", "run", "-o", str(folder / "run"), "--", *program]
    )
    assert recorded.stdout.splitlines() == bare.stdout.splitlines()
    assert recorded.returncode == bare.returncode
    assert "recording ended" not in recorded.stderr
    assert "Traceback" not in recorded.stderr or "Traceback" in bare.stderr


def seeds() -> list[int]:
    first, _, last = os.environ.get("OPSCOPE_ATTACK_SEEDS", "0-0").partition("-")
    return list(range(int(first), int(last), BATCH))


@pytest.mark.zoo
@pytest.mark.parametrize("kind", KINDS)
def test_every_piece_of_a_kind(tmp_path: Path, kind: str) -> None:
    held(tmp_path, "each", kind)


@pytest.mark.zoo
@pytest.mark.parametrize("first", seeds())
def test_programs_of_seeds(tmp_path: Path, first: int) -> None:
    held(tmp_path, str(first), str(first + BATCH))


@pytest.mark.zoo
def test_a_sample_of_pieces_of_other_kinds(tmp_path: Path) -> None:
    held(
        tmp_path,
        "each",
        "tensors.freed",
        "process.patched",
        "process.traced",
        "process.signatures",
        # docs/floors.md
        *([] if IS_OLDEST else ["process.climbs", "tracing.traced", "tracing.compiled"]),
    )
