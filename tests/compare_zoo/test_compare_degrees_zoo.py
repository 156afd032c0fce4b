# SPDX-License-Identifier: Apache-2.0
"""A training that ranks share beside the same one alone: silent when all is well, and the place of
a fault when it is not.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import opscope
from opscope.compare.tell.comparison import Comparison

pytestmark = pytest.mark.zoo

PROGRAM = Path(__file__).parent / "programs" / "degrees.py"


def record(to: Path, ranks: int, way: str, fault: str = "") -> Path:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    program = [*(launcher if ranks > 1 else []), str(PROGRAM), way, fault]
    command = [sys.executable, "-m", "opscope", "run", "-o", str(to), "--", sys.executable]
    done = subprocess.run(
        [*command, *program], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return to


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("alone") / "run", 1, "alone")


def beside(alone: Path, run: Path) -> Comparison:
    return opscope.compare(run, alone)


@pytest.mark.parametrize(("ranks", "way"), [(2, "sequence"), (4, "both")])
def test_ranks_that_share_one_training_agree_with_it(
    ranks: int, way: str, alone: Path, tmp_path: Path
) -> None:
    document = beside(alone, record(tmp_path / "run", ranks, way)).document
    assert (document.verdict, document.complete) == ("clean", True), document


@pytest.mark.parametrize(
    ("fault", "rank", "module", "says"),
    [
        ("twice", 1, "blocks.1.up", "ranks 0 and 1 hold the same shard"),
        ("unreduced", 0, "blocks.1.first", "gradients made before it agree"),
    ],
)
def test_a_fault_of_ranks_is_named(
    fault: str, rank: int, module: str, says: str, alone: Path, tmp_path: Path
) -> None:
    first = beside(alone, record(tmp_path / "run", 2, "tensor", fault)).findings[0]
    assert (first.rank, first.step, first.module) == (rank, 0, module), first
    assert any(says in reason for reason in first.reasons), first.reasons
