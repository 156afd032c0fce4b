# SPDX-License-Identifier: Apache-2.0
"""Searching for guilty operators: oracles, the log, and the search itself, the command replaced by
a function.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from opscope.bisect.api import Asked, bisect_operators, ranking
from opscope.bisect.differences import Difference, Means, bisect_differences, differences
from opscope.bisect.oracle import (
    BAD,
    GOOD,
    UNCLEAR,
    CommandOracle,
    ExitOracle,
    Observation,
    chosen_oracle,
    final_error,
    metric_oracle,
    oracle_for,
)
from opscope.bisect.search import Answers, needed_runs
from opscope.bisect.trials import LONGEST, Trials
from opscope.cli.bisect import with_command_apart
from opscope.errors import UnavailableError, UsageError
from opscope.run.finding import Document, Finding, Forward
from opscope.run.memory import MemoryRun
from opscope.run.protocol import RunInfo
from opscope.run.schema import Call, Process

NOTHING = Document(opscope="0", verb="scan")
REACHED = Document(
    opscope="0",
    verb="scan",
    findings=(Finding(kind="overflow-origin", evidence=({"reached": "loss"},)),),
)


def seen(folder: Path, *, code: int | None = 0, out: str = "", err: str = "") -> Observation:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stdout.txt").write_text(out)
    (folder / "stderr.txt").write_text(err)
    return Observation(folder=folder, exit_code=code, seconds=1.0)


# -- oracles ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "printed", "verdict"),
    [
        ("loss<2.5", "step 1 loss = 3.0\nstep 2 loss = 2.4", GOOD),
        ("loss<2.5", "step 1 loss=2.0\nstep 2 loss=2.6", BAD),
        ("loss<2.5", "{'loss': 1e-3}", GOOD),
        ("loss<2.5", "loss: nan", BAD),
        ("loss > -1", "Loss: -2", BAD),
        ("loss<2.5", "loss inf", BAD),
        ("loss<2.5", "val_loss: 9, loss: 1", GOOD),
        ("loss<2.5", "glossy 7", UNCLEAR),
        ("loss<2.5", "", UNCLEAR),
        ("accuracy>=0.9", "accuracy 0.90", GOOD),
        (r"name-regex(^([\d.]+) \S+$)<1", "0.5 x", GOOD),
    ],
)
def test_metric(metric: str, printed: str, verdict: str, tmp_path: Path) -> None:
    assert metric_oracle(metric).judge(seen(tmp_path, out=printed)) == verdict
    assert metric_oracle(metric).judge(seen(tmp_path, out=printed, code=1)) == UNCLEAR


@pytest.mark.parametrize(
    "metric", ["loss", "loss<", "<3", "loss<x", "name-regex(()<3", "name-regex(loss)<3"]
)
def test_metric_that_makes_no_sense(metric: str) -> None:
    with pytest.raises(UsageError, match="--metric"):
        chosen_oracle(None, metric)


def test_the_users_own_oracle(tmp_path: Path) -> None:
    script = tmp_path / "judge.py"
    script.write_text(
        "import os, sys\nassert os.environ['OPSCOPE_TRIAL_EXIT_CODE'] == "
        "'0'\nsys.exit(int(sys.stdin.read()))\n"
    )
    command = f"{sys.executable} {script}"
    for code, verdict in (("0", GOOD), ("1", BAD), ("100", BAD), ("125", UNCLEAR)):
        assert CommandOracle(command).judge(seen(tmp_path, out=code)) == verdict
    for wrong in ("200", "130"):
        with pytest.raises(UsageError, match="ended with"):
            CommandOracle(command).judge(seen(tmp_path, out=wrong))
    with pytest.raises(UsageError, match="cannot be run"):
        CommandOracle("/no/such/program").judge(seen(tmp_path))
    for pair in (("x", "loss<1"), (" ", None)):
        with pytest.raises(UsageError):
            chosen_oracle(*pair)


ERROR = (
    'Traceback (most recent call last):\n  File "train.py", line 3\nRuntimeError: bad at '
    "0x7f, row 3\n  and more\nopscope  1 step\n"
)


def test_the_failure_itself_tells(tmp_path: Path) -> None:
    def found(observation: Observation, document: Document = NOTHING) -> Any:
        return oracle_for(observation, lambda run: document)

    raised = found(seen(tmp_path / "a", code=1, err=ERROR))
    assert (
        raised.judge(seen(tmp_path / "b", code=1, err=ERROR.replace("0x7f, row 3", "0x9, row 77")))
        == BAD
    )
    assert raised.judge(seen(tmp_path / "b", code=1, err=ERROR.replace("bad", "worse"))) == UNCLEAR
    assert raised.judge(seen(tmp_path / "b", code=0)) == GOOD
    died = found(seen(tmp_path / "c", code=134, err=ERROR))
    assert [died.judge(seen(tmp_path / "d", code=code)) for code in (134, 0, 139)] == [
        BAD,
        GOOD,
        UNCLEAR,
    ]
    hung = found(seen(tmp_path / "e", code=None))
    assert [hung.judge(seen(tmp_path / "f", code=code)) for code in (None, 0, 1)] == [
        BAD,
        GOOD,
        UNCLEAR,
    ]
    nonfinite = found(seen(tmp_path / "g"), REACHED)
    assert nonfinite.judge(seen(tmp_path / "h")) == BAD
    assert nonfinite.judge(seen(tmp_path / "h", code=1)) == UNCLEAR
    assert found(seen(tmp_path / "i")) is None
    assert final_error("no traceback\nValueError: x") is None


# -- the log ---------------------------------------------------------------------------------------


class Command(Trials):
    """Trials whose command is a function: which elements are changed -> exit code."""

    def __init__(
        self,
        folder: Path,
        ends: Callable[[set[str]], int | None],
        question: str = "q",
        err: str = "",
    ) -> None:
        super().__init__(folder, ("python", "train.py"), question=question, timeout=None)
        self.ends = ends
        self.err = err
        self.asked: list[set[str]] = []

    def observe(self, options: Sequence[str], environment: Any, name: str) -> Observation:
        rules = [
            word.rpartition("=")[0]
            for before, word in itertools.pairwise(options)
            if before == "--substitute"
        ]
        changed = {op for rule in rules for op in rule.split(",")} | {
            f"{key}={value}" for key, value in environment.items()
        }
        self.asked.append(changed)
        self.made += 1
        found = seen(self.folder / name, code=self.ends(changed), err=self.err)
        found.run.mkdir()
        return found


OPS = [f"aten::op{number}.default" for number in range(20)]


def run_with(ops: Sequence[str]) -> MemoryRun:
    calls = [
        Call(
            process=0,
            rank=0,
            step=0,
            index=i,
            level="operator",
            phase="forward",
            op=op,
            module="",
            name=f"<root>:{i}#1",
        )
        for i, op in enumerate(ops)
    ]
    return MemoryRun(RunInfo(path="x", format="opscope"), (), calls)


def search(
    trials: Command,
    *,
    document: Document = NOTHING,
    ops: Sequence[str] = OPS,
    wanted: Callable[[str], bool] = bool,
    **asked: Any,
) -> Any:
    asking = Asked(**{"oracle": None, "ops": wanted, **asked})
    return bisect_operators(
        trials,
        asking,
        scan=lambda run: document,
        open_run=lambda run: run_with(ops),
        tell=lambda line: None,
    )[0]


def test_one_guilty_operator_among_many(tmp_path: Path) -> None:
    command = Command(tmp_path / "s", lambda changed: 0 if OPS[13] in changed else 134)
    found = search(command)
    assert found.guilty == (OPS[13],)
    assert len(command.asked) <= 14
    assert Path(found.good).resolve().parent == tmp_path / "s"
    assert (tmp_path / "s" / "bad" / "stdout.txt").exists()


def test_operators_that_are_guilty_together(tmp_path: Path) -> None:
    needed = {OPS[2], OPS[11], OPS[17]}
    found = search(Command(tmp_path / "s", lambda changed: 0 if needed <= changed else 134))
    assert set(found.guilty) == needed


class Printing(Command):
    """Trials that end well and print a loss: which elements are changed -> loss."""

    def __init__(self, folder: Path, losses: Callable[[set[str]], float]) -> None:
        super().__init__(folder, lambda changed: 0)
        self.losses = losses

    def observe(self, options: Sequence[str], environment: Any, name: str) -> Observation:
        found = super().observe(options, environment, name)
        (found.folder / "stdout.txt").write_text(
            f"step 1 loss 9.0\nstep 2 loss {self.losses(self.asked[-1])}\n"
        )
        return found


def test_a_metric_proves_the_operators_that_are_guilty_together(tmp_path: Path) -> None:
    needed = {OPS[3], OPS[12]}
    command = Printing(tmp_path / "s", lambda changed: 3.0 - len(needed & changed))
    lines: list[str] = []
    asked = Asked(oracle=metric_oracle("loss<1.5"))
    found, _ = bisect_operators(
        command,
        asked,
        scan=lambda run: NOTHING,
        open_run=lambda run: run_with(OPS),
        tell=lines.append,
    )
    assert set(found.guilty) == needed
    assert (found.proven, found.question) == (True, "loss<1.5 does not hold")
    assert len(lines) == found.trials  # each once, the first of all without a verdict
    one = search(
        Printing(tmp_path / "one", lambda changed: float("nan") if OPS[7] not in changed else 0.1),
        oracle=metric_oracle("loss<1"),
    )
    assert one.guilty == (OPS[7],)
    with pytest.raises(UsageError, match="does not fail"):
        search(Printing(tmp_path / "fine", lambda changed: 0.1), oracle=metric_oracle("loss<1"))


def test_the_suspect_of_the_scan_is_tried_first(tmp_path: Path) -> None:
    finding = Finding(kind="crash", op="aten::x", forward=Forward(call="c", op=OPS[9]))
    command = Command(tmp_path / "s", lambda changed: 0 if OPS[9] in changed else 134)
    found = search(command, document=Document(opscope="0", verb="scan", findings=(finding,)))
    assert found.guilty == (OPS[9],)
    assert found.trials == 3
    assert ranking(Document(opscope="0", verb="scan", findings=(finding,)), OPS)[:2] == [
        OPS[9],
        OPS[0],
    ]


def test_a_search_goes_on_where_it_was(tmp_path: Path) -> None:
    ends = lambda changed: 0 if OPS[13] in changed else 134  # noqa: E731
    first = Command(tmp_path / "s", ends)
    with pytest.raises(UnavailableError, match="3 trials were not enough"):
        search(first, most=3)
    log = tmp_path / "s" / "bisect.log"
    log.write_bytes(log.read_bytes() + b'{"elements": ["torn')
    again = Command(tmp_path / "s", ends)
    assert search(again).guilty == (OPS[13],)
    assert not [changed for changed in again.asked if changed in first.asked]
    last = Command(tmp_path / "s", ends)
    assert search(last).guilty == (OPS[13],)
    assert last.asked == []
    with pytest.raises(UsageError, match="another command or question"):
        Command(tmp_path / "s", ends, question="other")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "data").write_text("mine")
    with pytest.raises(UsageError, match="holds no search"):
        Command(tmp_path / "full", ends)
    assert (tmp_path / "full" / "data").read_text() == "mine"


def test_failures_that_cannot_be_searched_for(tmp_path: Path) -> None:
    never = search(Command(tmp_path / "never", lambda changed: 0))
    assert (never.guilty, never.proven) == ((), False)
    with pytest.raises(UsageError, match="does not fail"):
        search(Command(tmp_path / "passes", lambda changed: 0), oracle=ExitOracle(134))
    always = search(Command(tmp_path / "always", lambda changed: 134))
    assert (always.guilty, always.why) == (
        (),
        "the failure stays whatever operators are substituted",
    )
    codes = iter([134, *5 * [0]])
    with pytest.raises(UsageError, match="it did once, and in none of 5 more runs"):
        search(Command(tmp_path / "once", lambda changed: next(codes)))
    with pytest.raises(UnavailableError, match="cannot tell"):
        search(Command(tmp_path / "unclear", lambda changed: 3), oracle=ExitOracle(134))
    with pytest.raises(UsageError, match="ran no operator"):
        search(Command(tmp_path / "early", lambda changed: 1), ops=())
    said = (
        "opscope: recording into x\nno such file: y\nopscope  nothing was recorded  x\nchecked "
        " 0 of 0 calls\n"
    )
    with pytest.raises(UsageError, match=r"ended with exit code 1 \(no such file: y\); see"):
        search(Command(tmp_path / "says", lambda changed: 1, err=said), ops=())
    with pytest.raises(
        UsageError,
        match=r"--ops leaves nothing to search: none of 20 operators matches, aten::op0\.default "
        r"for one",
    ):
        search(Command(tmp_path / "none", lambda changed: 1), wanted=lambda op: False)
    other = search(Command(tmp_path / "other", lambda changed: 139 if changed else 134))
    assert (other.guilty, other.why) == ((), "no trial could tell")


def test_a_failure_that_comes_and_goes(tmp_path: Path) -> None:
    """Every third run fails, unless the guilty operator is changed; those that are innocent are
    good the first time.
    """
    runs = itertools.count()
    lines: list[str] = []
    command = Command(
        tmp_path / "s", lambda changed: 0 if OPS[4] in changed or next(runs) % 3 else 134
    )
    ranked = Document(
        opscope="0",
        verb="scan",
        findings=tuple(Finding(kind="crash", op=OPS[number]) for number in (9, 8, 4)),
    )
    found, _ = bisect_operators(
        command,
        Asked(oracle=None),
        scan=lambda run: ranked,
        open_run=lambda run: run_with(OPS),
        tell=lines.append,
    )
    assert found.guilty == (OPS[4],)
    assert Path(found.bad or "").resolve().name != "trial-000"  # the first as it was did not fail
    assert any(
        "came in 2 of 4 runs: a change counts as good after 5 good runs" in line for line in lines
    )


def test_an_operator_with_other_results_each_time(tmp_path: Path) -> None:
    flaky = Document(
        opscope="0", verb="scan", findings=(Finding(kind="nondeterminism", op=OPS[5]),)
    )
    command = Command(tmp_path / "s", lambda changed: 0 if OPS[5] in changed else 134)
    assert search(command, document=flaky).guilty == (OPS[5],)
    assert [changed for changed in command.asked if changed] == 3 * [{OPS[5]}]
    assert needed_runs(0.5) == 5


def test_an_operator_without_a_substitute_is_suspected_when_the_checks_accuse_it(
    tmp_path: Path,
) -> None:
    accused = Document(
        opscope="0",
        verb="scan",
        findings=(Finding(kind="replay-mismatch", op="mine::act.default"),),
    )
    ops = [*OPS[:2], "mine::act.default", "mine::other.default"]
    without = dict.fromkeys(ops[2:], "operator is not registered here")
    run = run_with(ops)
    run.processes = (
        Process(process=0, directory="p", substituted={"calls": {}, "refused": without}),
    )  # type: ignore[misc]
    command = Command(tmp_path / "s", lambda changed: 134)
    found, _ = bisect_operators(
        command,
        Asked(oracle=None),
        scan=lambda _: accused,
        open_run=lambda _: run,
        tell=lambda line: None,
    )
    assert (found.guilty, found.proven) == (("mine::act.default",), False)
    assert found.why.endswith(
        "and there is none for mine::act.default: operator is not registered here"
    )


def test_a_trial_that_was_not_recorded_proves_nothing(tmp_path: Path) -> None:
    trials = Trials(tmp_path / "s", (sys.executable, "-c", "pass"), question="q", timeout=60.0)
    trials.observe((), {}, "healthy")  # nothing to record, and nothing said against it
    note = (
        "import os, pathlib; pathlib.Path(os.environ['OPSCOPE_RUN'], "
        "'note-1.txt').write_text('opscope: not recording: full')"
    )
    trials = Trials(tmp_path / "t", (sys.executable, "-c", note), question="q", timeout=60.0)
    with pytest.raises(UnavailableError, match="proves nothing: not recording: full"):
        trials.observe((), {}, "first")


def test_how_long_a_run_may_take_follows_from_the_first(tmp_path: Path) -> None:
    trials = Trials(tmp_path / "s", (sys.executable, "-c", "pass"), question="q", timeout=None)
    took = trials.observe((), {}, "first").seconds
    assert trials.timeout == 60 + 50 * took
    hung = Trials(tmp_path / "t", ("python", "train.py"), question="q", timeout=None)
    hung.learn(None, LONGEST)
    assert hung.timeout == LONGEST


def test_answers_are_asked_once(tmp_path: Path) -> None:
    command = Command(tmp_path / "s", lambda changed: 134)
    answers = Answers(
        command,
        ExitOracle(134),
        lambda ops, name: command.observe((), {}, name),
        most=9,
        tell=lambda line: None,
    )
    assert [answers.ask(("a", "b")), answers.ask(("b", "a"))] == [BAD, BAD]
    assert command.made == 1


# -- differences of two runs -----------------------------------------------------------------------


def told(
    environment: dict[str, str],
    packages: dict[str, str],
    *,
    torch: dict[str, Any] | None = None,
    **config: Any,
) -> MemoryRun:
    facts = RunInfo(
        path="x", format="opscope", environment=environment, packages=packages, config=config
    )
    return MemoryRun(facts, (Process(process=0, directory="p", torch=torch or {}),), (), ())


def test_what_differs_between_two_runs() -> None:
    bad = told({"A": "1", "B": "2", "PWD": "/x", "OPSCOPE_RUN": "r"}, {"torch": "2.1"}, seed="1",
        deterministic=True,
               torch={"flags": {"get_num_threads": 2, "backends.cudnn.enabled": True, "lacks": 1},
                   "autocast": ["cpu:bfloat16"]})  # fmt: skip
    good = told({"A": "1", "B": "3", "C": "4", "PWD": "/y"}, {"torch": "2.0", "numpy": "1"},
        seed="1",
                torch={"flags": {"get_num_threads": 8, "backends.cudnn.enabled": True},
                    "autocast": []})  # fmt: skip
    found = {element.name: (element.bad, element.good) for element in differences(bad, good)}
    assert found == {
        "variable B": ("2", "3"),
        "variable C": (None, "4"),
        "switch deterministic": ("true", None),
        "package torch": ("2.1", "2.0"),
        "package numpy": (None, "1"),
        "flag get_num_threads": ("2", "8"),
        "autocast autocast": ("cpu:bfloat16", "off"),
    }


def test_the_variables_that_make_a_run_fail(tmp_path: Path) -> None:
    elements = tuple(
        Difference(kind="variable", key=f"V{i}", bad="bad", good="good") for i in range(9)
    )
    command = Command(
        tmp_path / "s", lambda changed: 0 if {"V2=good", "V7=good"} <= changed else 134
    )
    found = bisect_differences(
        command, elements, Means(), scan=lambda run: NOTHING, tell=lambda line: None
    )
    assert set(found.guilty) == {"variable V2: bad -> good", "variable V7: bad -> good"}
    assert found.proven
    assert command.asked.count({f"V{i}=bad" for i in range(9)}) == 1
    again = Command(tmp_path / "s", command.ends)
    assert (
        bisect_differences(
            again, elements, Means(), scan=lambda run: NOTHING, tell=lambda line: None
        ).guilty
        == found.guilty
    )
    assert again.asked == []
    stays = Command(tmp_path / "stays", lambda changed: 134)
    assert (
        bisect_differences(
            stays, elements, Means(), scan=lambda run: NOTHING, tell=lambda line: None
        ).guilty
        == ()
    )
    packages = (Difference(kind="package", key="torch", bad="2.1", good="2.0"),)
    with pytest.raises(UsageError, match="--hook"):
        bisect_differences(
            stays, packages, Means(), scan=lambda run: NOTHING, tell=lambda line: None
        )


def test_a_hook_changes_packages(tmp_path: Path) -> None:
    note = tmp_path / "note"
    hook = (
        f"{sys.executable} -c \"import sys; open({str(note)!r}, 'a').write(' "
        "'.join(sys.argv[1:]) + chr(10))\""
    )
    packages = (
        Difference(kind="package", key="torch", bad="2.1", good="2.0"),
        Difference(kind="package", key="numpy", bad="1", good="2"),
    )

    class Installed(Command):
        def observe(self, options: Sequence[str], environment: Any, name: str) -> Observation:
            self.ends = lambda changed: (
                0 if "torch==2.0" in note.read_text().splitlines()[-1] else 134
            )
            return super().observe(options, environment, name)

    found = bisect_differences(
        Installed(tmp_path / "s", lambda changed: None),
        packages,
        Means(hook=hook),
        scan=lambda run: NOTHING,
        tell=print,
    )
    assert found.guilty == ("package torch: 2.1 -> 2.0",)
    failing = Means(hook=f"{sys.executable} -c 'raise SystemExit(4)'")
    with pytest.raises(UnavailableError, match="ended with 4"):
        bisect_differences(
            Command(tmp_path / "f", lambda changed: 134),
            packages,
            failing,
            scan=lambda run: NOTHING,
            tell=print,
        )


SEARCH = """
import contextlib, sys
from opscope.bisect import trials
trials.GUARD = trials.GUARD.replace("sleep 10", "sleep 0.1")
guarded = trials._guarded

@contextlib.contextmanager
def told(group):
    with guarded(group):
        print("guarded", flush=True)
        yield

trials._guarded = told
trials._run(["sh", "-c", sys.argv[1]], {}, None, None, None)
"""


def test_a_trial_ends_with_a_search_that_is_killed(tmp_path: Path) -> None:
    """Even one that does not listen when it is asked to end."""
    fifo = tmp_path / "alive"
    os.mkfifo(fifo)
    trial = f"trap '' TERM; exec 3> {fifo}; echo up >&3; exec sleep 300"
    with (
        subprocess.Popen(
            [sys.executable, "-c", SEARCH, trial], stdout=subprocess.PIPE, text=True
        ) as search,
        fifo.open() as alive,
    ):
        assert search.stdout is not None
        assert (alive.readline(), search.stdout.readline()) == ("up\n", "guarded\n")
        search.kill()
        assert alive.read() == ""  # who writes to it is gone


def test_words_of_the_command_are_the_commands() -> None:
    assert with_command_apart(["bisect", "--metric", "loss<1", "python", "x.py", "--json"]) == [
        "bisect",
        "--metric",
        "loss<1",
        "--",
        "python",
        "x.py",
        "--json",
    ]
    assert with_command_apart(["bisect", "--between", "a", "b", "--json", "python", "x.py"])[
        -3:
    ] == ["--", "python", "x.py"]
    assert with_command_apart(["bisect", "-o", "d", "--", "python"]) == [
        "bisect",
        "-o",
        "d",
        "--",
        "python",
    ]
