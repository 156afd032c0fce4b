# SPDX-License-Identifier: Apache-2.0
"""Models that are initialised, then loaded: initialisations that reach nothing accuse nobody, and
hide no fault behind them.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest
from tests.compare_zoo.recorded import Goldens, Options, record

import opscope
from opscope.operators.catalogue import family

pytestmark = [pytest.mark.zoo, pytest.mark.filterwarnings("ignore")]

PROGRAM = Path(__file__).parent / "programs" / "loaded.py"

HEALTHY: dict[str, Options] = {
    "another seed": {"seed": 1},
    "normal": {"seed": 1, "init": "normal"},
    "truncated": {"seed": 1, "init": "trunc"},
    "orthogonal": {"seed": 1, "init": "orthogonal"},
    "kaiming": {"init": "kaiming"},
    "copied": {"init": "data", "seed": 2},
    "scaled": {"init": "scaled"},
    "in part": {"init": "part", "seed": 1},
    "an unused head": {"seed": 1, "unused": 8},
    "an average": {"seed": 1, "ema": 1},
    "an average of a head too": {"seed": 1, "ema": 1, "unused": 4},
    "on meta": {"meta": 1},
    "taken over": {"seed": 1, "assign": 1},
}
# What is changed, the operators of which one is right, its line in the program.
FAULTS: dict[str, tuple[Options, str, str]] = {
    "q": ({"q": 1.01}, "mul", "q = q *"),
    "scores": ({"scores": 1.01}, "mul", "scores = scores *"),
    "mixed": ({"mixed": 0.01}, "mul|add", "mixed = mixed +"),
    "rate": ({"rate": 1.5}, "add|_foreach_add", "optimizer.step()"),
}


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Goldens:
    return Goldens(PROGRAM, lambda: tmp_path_factory.mktemp("golden"))


@pytest.mark.parametrize("name", HEALTHY)
def test_what_reaches_nothing_accuses_nobody(name: str, golden: Goldens, tmp_path: Path) -> None:
    both = {key: value for key, value in HEALTHY[name].items() if key in {"unused", "ema"}}
    document = opscope.compare(
        record(PROGRAM, HEALTHY[name], tmp_path / "run"), golden(both)
    ).document
    assert document.verdict == "clean", [
        (one.kind, one.call, one.reasons) for one in document.findings
    ]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("init", ["", "normal", "orthogonal"])
@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_comes_first(
    name: str, init: str, dtype: str, golden: Goldens, tmp_path: Path
) -> None:
    if (name, dtype) == ("mixed", "float16"):
        pytest.skip(
            "a hundredth added is within what float16's rounding makes of statistics; values "
            "would tell it"
        )
    change, ops, line = FAULTS[name]
    made = record(
        PROGRAM, {"dtype": dtype, "seed": 1, "unused": 8, "init": init, **change}, tmp_path / "run"
    )
    first = opscope.compare(made, golden({"dtype": dtype, "unused": 8})).findings[0]
    assert family(first.op or "") in ops.split("|"), first
    source, _, number = str(first.source).rpartition(":")
    assert line in Path(source).read_text().splitlines()[int(number) - 1], first


def test_a_draw_that_the_model_reads_is_told(golden: Goldens, tmp_path: Path) -> None:
    """The same draws matter where the checkpoint lacks the tensor that they fill."""
    program = PROGRAM.read_text().replace(
        'if not name.startswith("unused")', 'if name != "head.weight"'
    )
    other = tmp_path / "partly.py"
    other.write_text(program)
    runs = []
    for seed in (0, 1):
        given, sys.argv = sys.argv, [str(other), json.dumps({"seed": seed})]
        try:
            with opscope.record(tmp_path / f"run{seed}", values="none"):
                runpy.run_path(str(other), run_name="__main__")
        finally:
            sys.argv = given
        runs.append(tmp_path / f"run{seed}")
    first = opscope.compare(runs[1], runs[0]).findings[0]
    assert "random numbers" in " ".join(first.reasons)
