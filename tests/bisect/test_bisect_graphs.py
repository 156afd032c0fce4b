# SPDX-License-Identifier: Apache-2.0
"""The search over graphs of torch.compile: graphs, their operators, the stage of the compiler."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from opscope.bisect.graphs import CAPTURE, STAGES, backend_rules, bisect_graphs
from opscope.bisect.oracle import Observation
from opscope.bisect.trials import Trials
from opscope.errors import UsageError
from opscope.record.backend_rules import backend_rule_for, parse_backend_rules
from opscope.run.finding import Document, Finding
from opscope.run.memory import MemoryRun
from opscope.run.protocol import RunInfo
from opscope.run.schema import Process
from opscope.version import VERSION

GRAPHS = {"graph_0_0": 5, "graph_1_0": 9, "graph_1_1": 12}
NOTHING = Document(opscope=VERSION, verb="scan", runs=("x",), verdict="clean")

Trial = Callable[[str, int], str]  # a graph and a place in it -> the backend that makes it


class Compiling(Trials):
    """Trials whose command compiles three graphs, and fails as a function of their backends says;
    None: nothing is compiled.
    """

    def __init__(
        self, folder: Path, fails: Callable[[Trial | None], bool], *, graphs: bool = True
    ) -> None:
        super().__init__(folder, ("python", "train.py"), question="q", timeout=None)
        self.fails, self.compiled = fails, GRAPHS if graphs else {}
        self.runs: dict[Path, dict[str, Any]] = {}

    def observe(self, options: Sequence[str], environment: Any, name: str) -> Observation:
        text = next(
            (word for before, word in itertools.pairwise(options) if before == "--backend"), ""
        )
        rules = parse_backend_rules(text) if text else ()

        def backend(graph: str, place: int) -> str:
            rule = backend_rule_for(rules, graph)
            chosen = rule is not None and (rule.places is None or place in rule.places)
            return rule.backend if rule is not None and chosen else "inductor"

        self.made += 1
        failed = self.fails(None if "TORCH_COMPILE_DISABLE" in environment else backend)
        folder = self.folder / name
        (folder / "run").mkdir(parents=True)
        (folder / "stderr.txt").write_text(
            "Traceback (most recent call last):\nKeyError: 'buf3'\n" if failed else ""
        )
        notes: dict[str, dict[str, Any]] = {}
        for graph, operators in self.compiled.items():
            made = [backend(graph, place) for place in range(operators)]
            whole = len(set(made)) == 1
            notes[graph] = {
                "operators": operators,
                "calls": [f"kind_{place % 4}" for place in range(operators)],
                "backend": made[0] if whole else "parted",
                "frame": f"model.py:{operators} in forward",
            }
            if not whole:
                notes[graph]["apart"] = [
                    {"place": place, "node": f"op_{place}", "source": f"model.py:{100 + place}"}
                    for place, backend_ in enumerate(made)
                    if backend_ != "inductor"
                ]
        self.runs[folder / "run"] = notes
        return Observation(folder=folder, exit_code=1 if failed else 0, seconds=0.1)

    def open(self, path: Path) -> MemoryRun:
        process = Process(process=0, directory="p", torch={"graphs": self.runs[path]})
        return MemoryRun(RunInfo(path="x", format="opscope"), (process,), (), ())


def search(trials: Compiling, *findings: Finding, most: int = 100) -> Any:
    return bisect_graphs(
        trials,
        None,
        most=most,
        scan=lambda run: Document(
            opscope=VERSION, verb="scan", runs=("x",), verdict="clean", findings=findings
        ),
        open_run=trials.open,
        tell=lambda line: None,
    )


def test_one_operator_of_one_graph(tmp_path: Path) -> None:
    trials = Compiling(
        tmp_path / "s", lambda made: made is not None and made("graph_1_1", 7) == "inductor"
    )
    found, (finding,) = search(trials)
    assert found.guilty == ("op_7 of graph_1_1",)
    assert found.stage == STAGES["aot_eager_decomp_partition"]
    assert (finding.op, finding.source) == ("compiled::graph_1_1", "model.py:107")
    assert finding.confidence == "proven"
    assert found.trials <= 20


def test_the_graph_that_the_checks_accuse_is_tried_first(tmp_path: Path) -> None:
    def fails(made: Trial | None) -> bool:
        return made is not None and made("graph_1_1", 0) == "inductor"

    plain, told = Compiling(tmp_path / "p", fails), Compiling(tmp_path / "t", fails)
    search(plain)
    search(told, Finding(kind="compiled-mismatch", op="compiled::graph_1_1"))
    assert told.made < plain.made


def test_all_operators_of_one_kind(tmp_path: Path) -> None:
    """As where a rule of the compiler is wrong: the kind is found before its operators."""
    trials = Compiling(
        tmp_path / "s",
        lambda made: (
            made is not None
            and any(made("graph_1_1", place) == "inductor" for place in range(1, 12, 4))
        ),
    )
    found, _ = search(trials)
    assert found.guilty == ("op_1, op_5, op_9 of graph_1_1",)
    assert found.trials <= 18


def test_operators_of_two_graphs_that_are_guilty_together(tmp_path: Path) -> None:
    trials = Compiling(
        tmp_path / "s",
        lambda made: (
            made is not None
            and "inductor" in {made("graph_0_0", 1), made("graph_1_0", 3), made("graph_1_0", 8)}
        ),
    )
    found, findings = search(trials)
    assert found.guilty == ("op_1 of graph_0_0", "op_3, op_8 of graph_1_0")
    assert len(findings) == 2


@pytest.mark.parametrize(
    ("works", "stage"),
    [
        ({"aot_eager", "eager"}, STAGES["aot_eager"]),
        ({"eager"}, STAGES["eager"]),
    ],
)
def test_the_stage_that_is_guilty(works: set[str], stage: str, tmp_path: Path) -> None:
    trials = Compiling(
        tmp_path / "s", lambda made: made is not None and made("graph_0_0", 2) not in works
    )
    assert search(trials)[0].stage == stage


def test_a_graph_of_which_no_part_is_guilty(tmp_path: Path) -> None:
    """Two nodes next to each other that fail only where one of them alone is left out."""
    trials = Compiling(
        tmp_path / "s",
        lambda made: (
            made is not None and any(made("graph_0_0", place) == "inductor" for place in range(5))
        ),
    )
    found, (finding,) = search(trials)
    assert found.guilty == ("graph_0_0",)
    assert finding.source == "model.py:5"


def test_too_few_trials_end_at_what_is_known(tmp_path: Path) -> None:
    trials = Compiling(
        tmp_path / "s", lambda made: made is not None and made("graph_1_1", 7) == "inductor"
    )
    found, _ = search(trials, most=7)
    assert found.guilty
    assert all("graph_1_1" in words for words in found.guilty)


def test_a_failure_that_is_not_the_compilers(tmp_path: Path) -> None:
    found, findings = search(Compiling(tmp_path / "s", lambda made: True))
    assert (found.guilty, findings) == ((), ())
    assert "not the compiler's" in found.why


def test_a_failure_of_the_capture(tmp_path: Path) -> None:
    found, findings = search(Compiling(tmp_path / "s", lambda made: made is not None))
    assert (found.guilty, findings) == ((CAPTURE,), ())


def test_a_command_that_compiles_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="compiled nothing"):
        search(Compiling(tmp_path / "s", lambda made: True, graphs=False))


def test_without_a_failure_the_checks_may_accuse(tmp_path: Path) -> None:
    accused = Finding(kind="compiled-mismatch", op="compiled::graph_1_0")
    found, findings = search(Compiling(tmp_path / "s", lambda made: False), accused)
    assert (found.guilty, found.proven, findings) == (("compiled::graph_1_0",), False, (accused,))


def test_elements_as_rules() -> None:
    assert (
        backend_rules(["graph_0_0=aot_eager", "graph_1_0/3", "graph_1_0/4", "graph_2_0"])
        == "graph_0_0=aot_eager;graph_2_0=eager;graph_1_0/3-4=eager"
    )
