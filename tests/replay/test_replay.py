# SPDX-License-Identifier: Apache-2.0
"""Recorded calls made again: which are wrong, which cannot be tried, and going on after an
interruption.
"""

from __future__ import annotations

import csv
import os
import signal
import tempfile
from pathlib import Path

import pytest
import torch
from tests.wrong_kernels.kernels import CATALOGUE, scores

import opscope
from opscope.errors import UsageError
from opscope.replay.api import RESULTS, Plan, Worker, document_of, replay_calls
from opscope.replay.kernels import Kernels
from opscope.replay.worker import Replayer
from opscope.report.replay import cell, write_csv
from opscope.run.memory import MemoryRun
from opscope.run.protocol import RunInfo
from opscope.run.query import calls
from opscope.run.schema import Call
from opscope.run.selection import parse_selection


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One step in which the gradient of the loss is half of what it should be."""
    path = tmp_path_factory.mktemp("replay") / "run"
    with CATALOGUE["nll-loss-backward-scale"].installed(), opscope.record(path, values="full"):
        scores(1)
    return path


@pytest.mark.zoo
def test_the_wrong_call_is_found_without_a_golden_run_and_a_second_replay_goes_on(
    recorded: Path, tmp_path: Path
) -> None:
    run = opscope.open_run(recorded)
    seen: list[tuple[int, int]] = []
    done = {"selection": None, "plan": Plan(), "output": tmp_path}
    lines = list(replay_calls(run, progress=lambda what, at, of: seen.append((at, of)), **done))
    document = document_of(run, lines)
    assert [finding.op for finding in document.findings] == ["aten::nll_loss_backward.default"]
    assert document.findings[0].confidence == "proven"
    assert document.findings[0].evidence[0]["nature"] == "transient"
    assert seen[-1] == (len(lines), len(lines))
    reasons = document.summary["reasons"]
    assert any("nobody" in reason for reason in reasons)
    assert sum(document.summary["verdicts"].values()) == len(lines)
    results = tmp_path / RESULTS
    results.write_bytes(results.read_bytes() + b'{"torn')
    again = list(replay_calls(run, **done))
    assert [line.word for line in again] == [line.word for line in lines]
    with pytest.raises(UsageError, match="other options"):
        list(replay_calls(run, selection=None, plan=Plan(repeat=2), output=tmp_path))
    write_csv(tmp_path / "table.csv", lines)
    with (tmp_path / "table.csv").open(encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    wrong = next(row for row in rows if row["Verdict"] == "wrong")
    assert wrong["Status"] == "error"
    assert float(wrong["最大绝对误差"]) > 0
    assert {row["Status"] for row in rows} <= {"pass", "warning", "error", "SKIP"}


def random_calls() -> None:
    torch.manual_seed(3)
    torch.nn.functional.dropout(torch.ones(40, 5), 0.3)
    torch.randn(70)
    torch.randint(0, 9, (20,))
    torch.empty(30).exponential_(2.0).normal_(0.5)
    torch.empty(6).copy_(torch.arange(6.0))


@pytest.mark.zoo
def test_random_calls_go_on_from_the_recorded_state_and_memory_that_is_only_filled_needs_no_values(
    tmp_path: Path,
) -> None:
    with opscope.record(tmp_path / "run", values="full"):
        random_calls()
    lines = list(
        replay_calls(opscope.open_run(tmp_path / "run"), selection=None, plan=Plan(), output=None)
    )
    words = {line.op: line.word for line in lines if "empty" not in line.op}
    assert words.keys() >= {
        f"aten::{op}"
        for op in (
            "bernoulli_.float",
            "randn.default",
            "randint.low",
            "normal_.default",
            "copy_.default",
        )
    }
    assert set(words.values()) == {"agree"}


@pytest.mark.zoo
def test_a_wrong_random_kernel_is_found_from_the_recorded_state(tmp_path: Path) -> None:
    with CATALOGUE["dropout-biased"].installed(), opscope.record(tmp_path / "run", values="full"):
        random_calls()
    (finding,) = opscope.replay(opscope.open_run(tmp_path / "run")).findings
    assert (finding.op, finding.confidence) == ("aten::bernoulli_.float", "proven")


def test_a_result_that_is_an_earlier_calls_is_said_to_be_stale(tmp_path: Path) -> None:
    with CATALOGUE["silu-stale"].installed(), opscope.record(tmp_path / "run", values="full"):
        for seed in (1, 2):
            torch.nn.functional.silu(torch.randn(40, generator=torch.Generator().manual_seed(seed)))
    (finding,) = opscope.replay(opscope.open_run(tmp_path / "run")).findings
    assert finding.op == "aten::silu.default"
    assert any(
        "the result of <root>:silu#1 in step 0, whose inputs were others" in reason
        for reason in finding.reasons
    )
    assert not any("making it again" in reason for reason in finding.reasons)


LIBRARY = """
import torch
library = torch.library.Library("aten", "IMPL")
made = {"tanh": 0, "sigmoid": 0, "erf": 0}


def wrong(name, at):
    def kernel(x):
        made[name] += 1
        return torch.zeros_like(x) + at(made[name])
    library.impl(name, kernel, "CPU")


wrong("tanh", lambda number: 0.5)
wrong("sigmoid", lambda number: 0.5 + number)
wrong("erf", lambda number: 0.5 if number % 3 == 0 else 0.0)
"""


@pytest.mark.zoo
def test_kernels_of_a_library_make_the_calls_and_others_judge_them(tmp_path: Path) -> None:
    """Faults of the software, of unstable hardware and of moments: always the same, always another,
    every third time.
    """
    (tmp_path / "library.py").write_text(LIBRARY)
    with opscope.record(tmp_path / "run", values="full"):
        x = torch.zeros(8) + 0.25
        torch.tanh(x), torch.sigmoid(x), torch.erf(x * 0), torch.exp(x)
    run = opscope.open_run(tmp_path / "run")
    plan = Plan(repeat=6, imports=(str(tmp_path / "library.py"),))
    found = {line.op: line for line in replay_calls(run, selection=None, plan=plan, output=None)}
    told = {op: (line.word, line.nature, line.wrong, line.tried) for op, line in found.items()}
    assert told["aten::tanh.default"] == ("wrong", "persistent", 6, 6)
    assert told["aten::sigmoid.default"] == ("wrong", "unstable", 6, 6)
    assert told["aten::erf.default"] == ("wrong", "intermittent", 2, 6)
    assert told["aten::exp.default"][0] == "agree"
    assert found["aten::tanh.default"].against == "outputs on cpu"
    (tmp_path / "broken.py").write_text("raise ValueError('no')")
    lines = replay_calls(
        run, selection=None, plan=Plan(imports=(str(tmp_path / "broken.py"),)), output=None
    )
    assert {line.reason for line in lines if line.op == "aten::exp.default"} == {
        f"--import {tmp_path / 'broken.py'}: ValueError: no"
    }


def test_an_operator_of_a_library_alone_has_nobody_to_judge_it(tmp_path: Path) -> None:
    run = MemoryRun(
        RunInfo(path="x", format="opscope"),
        (),
        [
            Call(
                process=0,
                rank=0,
                step=0,
                index=0,
                level="operator",
                phase="forward",
                op="lacks::double.default",
                module="",
                name="<root>:double#1",
            )
        ],
    )
    with Kernels(str(tmp_path), ()) as kernels:
        replayer = Replayer(run, device="cpu", repeat=1, synthesise=True, kernels=kernels)
        assert "nothing independent" in replayer.replay(next(iter(calls(run))))["reason"]


@pytest.mark.zoo
def test_what_reads_a_conjugate_view_is_not_accused(tmp_path: Path) -> None:
    with opscope.record(tmp_path / "run", values="full"):
        x = torch.view_as_complex(torch.randn(8, 2)) * 1
        x.conj().clone()
    document = opscope.replay(opscope.open_run(tmp_path / "run"))
    assert document.findings == ()


def test_values_that_were_not_kept_are_synthesised_and_said_so(tmp_path: Path) -> None:
    with opscope.record(tmp_path / "run"):
        torch.mm(torch.randn(4, 5), torch.randn(5, 6))
    run = opscope.open_run(tmp_path / "run")
    call = next(each for each in calls(run) if "mm" in each.op)
    assert (
        Replayer(run, device="cpu", repeat=2, synthesise=True).replay(call)["values"]
        == "synthesised"
    )
    assert (
        "not kept" in Replayer(run, device="cpu", repeat=1, synthesise=False).replay(call)["reason"]
    )


def test_cells_are_no_formulas() -> None:
    assert cell("=1+1") == "'=1+1"
    assert cell("@x") == "'@x"
    assert cell(None) == ""
    assert cell(0.5) == "0.5"


def test_a_process_that_was_killed_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    worker = Worker("nowhere", Plan())
    (place,) = tmp_path.iterdir()
    (place / "results.pt").write_bytes(b"of a kernel that did not return")
    worker.process.start()
    os.kill(worker.process.pid, signal.SIGKILL)
    assert worker.end() == "signal 9"
    assert not list(tmp_path.iterdir())


def test_a_selection_of_nothing_agrees_with_nothing(recorded: Path) -> None:
    document = opscope.replay(opscope.open_run(recorded), selection=parse_selection(ops="nll_los"))
    assert (document.verdict, document.complete) == ("clean", False)
    assert any(
        line.startswith("--ops 'nll_los' matches nothing in this run; near names: ")
        for line in document.summary["warnings"]
    )
