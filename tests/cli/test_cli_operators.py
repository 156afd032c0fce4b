# SPDX-License-Identifier: Apache-2.0
"""--operators FILE: what operators are, told to a verb."""

from __future__ import annotations

import base64
import gzip
import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from cli_runs import ended, environment, write_run

pytestmark = pytest.mark.zoo

PROGRAM = """
import sys, torch
library = torch.library.Library("clilib", "DEF")
library.define("noise(Tensor x) -> Tensor")
library.impl("noise", lambda x: x + torch.randn(x.shape), "CPU")
torch.manual_seed(int(sys.argv[1]))
torch.ops.clilib.noise(torch.ones(4, 4)).sum()
"""
OPSCOPE = (sys.executable, "-m", "opscope")


def with_program(folder: Path) -> Path:
    (folder / "train.py").write_text(PROGRAM)
    (folder / "mine.txt").write_text("# mine\nclilib::noise  random\n")
    return folder


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return with_program(tmp_path)


@pytest.fixture(scope="module")
def untold(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where runs a and b lie, of which nothing was told while they were recorded."""
    folder = with_program(tmp_path_factory.mktemp("untold"))
    for seed, name in enumerate("ab"):
        recorded(folder, name, seed)
    return folder


def recorded(place: Path, name: str, seed: int, *options: str) -> None:
    line = (*OPSCOPE, "run", "-o", name, *options, "--", sys.executable, "train.py", seed)
    assert ended(line, place).returncode == 0


def compared(place: Path, *options: str) -> tuple[int, str]:
    done = ended((*OPSCOPE, "compare", "a", "b", "--json", *options), place)
    return done.returncode, "\n".join(json.loads(done.stdout)["summary"]["warnings"])


def test_a_file_changes_a_verdict(untold: Path) -> None:
    code, warnings = compared(untold)
    assert code == 1
    assert "clilib::noise.default: nothing is known of what this computes" in warnings
    code, warnings = compared(untold, "--operators", "mine.txt")
    assert code == 0
    assert "clilib::noise.default: drew other random numbers" in warnings


def test_what_was_told_while_recording_goes_with_the_run(place: Path) -> None:
    for seed, name in enumerate("ab"):
        recorded(place, name, seed, "--operators", "mine.txt")
    assert compared(place)[0] == 0


def test_a_program_that_is_killed_leaves_what_it_met(place: Path) -> None:
    (place / "train.py").write_text(f"{PROGRAM}import os\nos.kill(os.getpid(), 9)\n")
    line = (*OPSCOPE, "run", "-o", "a", "--operators", "mine.txt")
    ended((*line, "--", sys.executable, "train.py", 0), place)
    (file,) = place.glob("a/processes/p-*/operators.json")
    assert json.loads(file.read_bytes()) == {
        "version": 1,
        "operators": {"clilib::noise.default": {"random": True}},
    }


def test_workers_are_told_too(untold: Path) -> None:
    assert compared(untold, "--executor", "processes:1")[0] == 1
    code, warnings = compared(untold, "--executor", "processes:1", "--operators", "mine.txt")
    assert code == 0
    assert "clilib::noise.default: drew other random numbers" in warnings


STEPS = """
import torch
library = torch.library.Library("clilib", "DEF")
library.define("fetched(Tensor x) -> Tensor")
library.impl("fetched", lambda x: x * float("nan"), "CPU")
weight = torch.ones(4, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.0)
for step in range(2):
    torch.ops.clilib.fetched(torch.ones(1))
    torch.exp(torch.full((4,), 1000.0 * step))
    weight.sum().backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run a, whose first finding is an operator that only brings values in, and b that tells
    so.
    """
    place = tmp_path_factory.mktemp("trained")
    (place / "train.py").write_text(STEPS)
    (place / "mine.txt").write_text("clilib::fetched brings loss tolerance=sum\n")
    recorded(place, "a", 0)
    recorded(place, "b", 0, "--operators", "mine.txt")
    return place


def words_of(place: Path, *words: object) -> tuple[int, dict[str, Any]]:
    done = ended((*OPSCOPE, *words, "--json"), place)
    return done.returncode, json.loads(done.stdout)


def test_show_takes_the_step_of_the_first_finding_by_the_file(trained: Path) -> None:
    for options, step in (((), 0), (("--operators", "mine.txt"), 1)):
        _, document = words_of(trained, "show", "a", "<root>:exp#1", *options)
        assert [call["step"] for call in document["calls"]] == [step]


def case_of(place: Path, name: str, *words: str) -> dict[str, Any]:
    ended((*OPSCOPE, "repro", *words, "-o", name), place)
    case: dict[str, Any] = json.loads((place / name / "case.json").read_bytes())
    return case


def test_repro_cuts_the_first_finding_by_the_file(trained: Path) -> None:
    assert case_of(trained, "plain", "a")["op"] == "clilib::fetched.default"
    told = case_of(trained, "told", "a", "--operators", "mine.txt")
    assert told["op"] == "aten::exp.default"


def test_a_case_allows_what_the_file_says_or_what_the_run_tells(trained: Path) -> None:
    call = "s0/<root>:fetched#1"
    plain = case_of(trained, "lenient", "a", call)
    told = case_of(trained, "strict", "a", call, "--operators", "mine.txt")
    recorded = case_of(trained, "recorded", "b", call)
    assert told["allowed"] == recorded["allowed"] != plain["allowed"]
    assert told["allowed"]["float32"]["relative"] < plain["allowed"]["float32"]["relative"]


def test_bisect_searches_what_computes_by_the_file_and_records_with_it(trained: Path) -> None:
    (trained / "views.txt").write_text("clilib::fetched view\n")
    words = ("bisect", "-o", "s", "--operators", "views.txt", "--ops", "clilib::*", "--")
    done = ended((*OPSCOPE, *words, sys.executable, "train.py"), trained)
    assert done.returncode == 2
    assert "--ops leaves nothing to search" in done.stderr
    (file,) = trained.glob("s/first/run/processes/*/operators.json")
    assert json.loads(file.read_bytes())["operators"]["clilib::fetched.default"] == {"view": True}


def losses(training: dict[str, Any]) -> list[str]:
    return [line["label"] for line in training["losses"]]


def test_a_page_is_made_by_the_file_and_by_what_the_run_tells(trained: Path) -> None:
    for run, options, found in (
        ("a", (), []),
        ("a", ("--operators", "mine.txt"), ["r0 <root>:fetched#1"]),
        ("b", (), ["r0 <root>:fetched#1"]),
    ):
        done = ended((*OPSCOPE, "report", run, "-o", "page.html", *options), trained)
        text = (trained / done.stdout.strip()).read_text(encoding="utf-8")
        held = text.partition('id="documents"')[2].partition(">")[2].partition("<")[0]
        documents = json.loads(gzip.decompress(base64.b64decode(held)))
        assert losses(documents["training"]) == found


def test_serve_knows_the_file_in_every_thread(trained: Path) -> None:
    pytest.importorskip("uvicorn")
    words = [*OPSCOPE, "serve", "a", "--operators", "mine.txt"]
    with subprocess.Popen(
        words, env=environment(), cwd=trained, stdout=subprocess.PIPE, text=True
    ) as served:
        assert served.stdout is not None
        address = served.stdout.readline().strip()
        try:
            verdict, training = (
                json.load(urllib.request.urlopen(f"{address}0/data/{name}", timeout=60))
                for name in ("verdict", "training")
            )
        finally:
            served.send_signal(signal.SIGINT)
        served.communicate(timeout=60)
    assert [finding["op"] for finding in verdict["findings"]] == ["aten::exp.default"]
    assert losses(training) == ["r0 <root>:fetched#1"]


@pytest.mark.sample
@pytest.mark.parametrize(
    "verb",
    [
        ("scan", "a"),
        ("run", "-o", "c"),
        ("replay", "a"),
        ("repro", "a"),
        ("show", "a", "<root>:softmax#1"),
        ("bisect", "-o", "c"),
        ("serve", "a"),
    ],
)
def test_a_file_that_cannot_be_read(place: Path, verb: tuple[str, ...]) -> None:
    write_run(place / "a", place / "model.py")
    (place / "mine.txt").write_text("clilib::noise movs\n")
    command = ("--", sys.executable, "train.py", "0") if verb[0] in ("run", "bisect") else ()
    done = ended((*OPSCOPE, *verb, "--operators", "mine.txt", *command), place)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "opscope: mine.txt:1: movs is no trait, or stands there twice"
    ]
