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

BEYOND = pytest.mark.attack  # make zoo-all: of them the zoo has a sample
PROGRAMS = Path(__file__).parent / "programs"


def record(to: Path, ranks: int, *arguments: str, program: str = "degrees") -> Path:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    path = str(PROGRAMS / f"{program}.py")
    program_line = [*(launcher if ranks > 1 else []), path, *arguments]
    command = [sys.executable, "-m", "opscope", "run", "-o", str(to), "--", sys.executable]
    done = subprocess.run(
        [*command, *program_line], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return to


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("alone") / "run", 1, "alone", "")


def beside(alone: Path, run: Path) -> Comparison:
    return opscope.compare(run, alone)


@pytest.mark.parametrize(("ranks", "way"), [(2, "sequence"), (4, "both")])
def test_ranks_that_share_one_training_agree_with_it(
    ranks: int, way: str, alone: Path, tmp_path: Path
) -> None:
    document = beside(alone, record(tmp_path / "run", ranks, way, "")).document
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


def test_wrappers_that_share_a_training_out_are_no_difference(tmp_path: Path) -> None:
    """Of flat parameters gradients are not compared, which is said."""
    alone = record(tmp_path / "alone", 1, "alone", program="wrappers")
    for way in ("zero", "flat", "pipeline"):
        run = record(tmp_path / way, 2, way, program="wrappers")
        assert opscope.scan(run).findings == ()
        document = beside(alone, run).document
        assert (document.verdict, document.complete) == ("clean", way != "flat"), document
        told = [line for line in document.summary["warnings"] if "one flat tensor" in line]
        assert len(told) == (way == "flat")


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The model of megatron.py alone, by its dropout."""
    folder = tmp_path_factory.mktemp("gpt")
    return {
        drop: record(folder / drop, 1, "1x1", "none", "0", drop, program="megatron")
        for drop in ("0", "0.1")
    }


@pytest.mark.parametrize(
    ("ranks", "way", "drop"),
    [
        (4, "2x2", "0.1"),
        pytest.param(2, "2x1s", "0", marks=BEYOND),
        pytest.param(4, "2x2", "0", marks=BEYOND),
        pytest.param(4, "4x1s", "0", marks=BEYOND),
    ],
)
def test_parallelism_that_is_written_out_agrees(
    ranks: int, way: str, drop: str, gpt: dict[str, Path], tmp_path: Path
) -> None:
    run = record(tmp_path / "run", ranks, way, "none", "0", drop, program="megatron")
    document = beside(gpt[drop], run).document
    assert document.verdict == "clean", document
    assert document.complete == (drop == "0")  # dropout draws otherwise, which is said


@pytest.mark.parametrize(
    ("way", "fault", "drop", "place", "says"),
    [
        pytest.param(
            "2x2",
            "twice",
            "0",
            (1, 0, "blocks.1.up"),
            "ranks 0 and 1 hold the same shard",
            marks=BEYOND,
        ),
        pytest.param(
            "2x2",
            "unreduced",
            "0",
            (0, 0, "blocks.1.norm2"),
            "gradients made before it agree",
            marks=BEYOND,
        ),
        pytest.param(
            "2x2", "split", "0", (0, 0, "blocks.1"), "what comes out of them does not", marks=BEYOND
        ),
        pytest.param(
            "2x2",
            "bias",
            "0",
            (None, 0, "blocks.1"),
            "what comes out of them does not",
            marks=BEYOND,
        ),
        ("2x2", "kernel", "0", (3, 0, "blocks.1.norm1"), "of 4 ranks only 3"),
        pytest.param(
            "2x2", "eval", "0.1", (3, 0, "blocks.0.drop"), "rank 3 does not run it", marks=BEYOND
        ),
        pytest.param(
            "2x2",
            "seeds",
            "0.1",
            (2, 0, "blocks.0.drop"),
            "ranks 0 and 2 draw the same",
            marks=BEYOND,
        ),
        pytest.param("2x2", "ahead", "0", (2, 2, None), "only rank 2, 3 runs it", marks=BEYOND),
        pytest.param(
            "2x2", "skipped", "0", (3, 2, None), "goes on to its next batch", marks=BEYOND
        ),
        pytest.param(
            "2x2",
            "group",
            "0",
            (0, 0, "head"),
            "all gradients are 0.5 times golden's",
            marks=BEYOND,
        ),
        pytest.param(
            "2x2",
            "averaged",
            "0",
            (0, 0, "blocks.1.down"),
            "it is 0.5 times golden's",
            marks=BEYOND,
        ),
        pytest.param(
            "2x2s",
            "norm",
            "0",
            (0, 0, "blocks.1.norm2"),
            "blocks.1.norm2.weight is not golden's",
            marks=BEYOND,
        ),
    ],
)
def test_a_fault_of_parallelism_that_is_written_out_is_named(  # noqa: PLR0917
    way: str,
    fault: str,
    drop: str,
    place: tuple[int | None, int, str | None],
    says: str,
    gpt: dict[str, Path],
    tmp_path: Path,
) -> None:
    run = record(tmp_path / "run", 4, way, fault, "0", drop, program="megatron")
    first = beside(gpt[drop], run).findings[0]
    rank, step, module = place
    assert (rank in {None, first.rank}, first.step) == (True, step), first
    assert (first.module or None) == module, first
    assert any(says in reason for reason in first.reasons), first.reasons


@pytest.mark.parametrize(
    ("way", "ranks", "fault", "place", "says"),
    [
        pytest.param(
            "experts",
            2,
            "routed",
            (1, 0, "blocks.1.experts.2.up"),
            "what comes out of them",
            marks=BEYOND,
        ),
        pytest.param(
            "pipeline",
            2,
            "swapped",
            (1, 0, "layers.2.up"),
            "golden holds as layers.3.up.weight",
            marks=BEYOND,
        ),
        pytest.param(
            "pipeline",
            2,
            "reordered",
            (0, 0, None),
            "of layers.1.down.weight is not golden's",
            marks=BEYOND,
        ),
        ("cache", 2, "stale", (1, 3, "layers.1"), "rank 1 reads what layers.1:slice made"),
        pytest.param(
            "uneven", 3, "uneven", (None, 0, None), "what comes out of them", marks=BEYOND
        ),
    ],
)
def test_a_fault_of_parts_is_named_and_the_healthy_twin_agrees(
    way: str,
    ranks: int,
    fault: str,
    place: tuple[int | None, int, str | None],
    says: str,
    tmp_path: Path,
) -> None:
    alone = record(tmp_path / "alone", 1, f"alone-{way}", "none", "0", program="parts")
    healthy = record(tmp_path / "healthy", ranks, way, "none", "0", program="parts")
    document = beside(alone, healthy).document
    assert (document.verdict, document.complete) == ("clean", True), document
    first = beside(
        alone, record(tmp_path / "run", ranks, way, fault, "0", program="parts")
    ).findings[0]
    rank, step, module = place
    assert (rank in {None, first.rank}, first.step) == (True, step), first
    assert (first.module or None) == module, first
    assert any(says in reason for reason in first.reasons), first.reasons
