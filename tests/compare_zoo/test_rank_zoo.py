# SPDX-License-Identifier: Apache-2.0
"""Two ranks of one training under torchrun: where they go apart, and that they do not when all is
well.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opscope.cli import main

pytestmark = pytest.mark.zoo

PROGRAM = Path(__file__).parent / "programs" / "ranks.py"
LAUNCH = [
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc-per-node=2",
    str(PROGRAM),
]


def record(fault: str, to: Path, *options: str) -> Path:
    opscope = [sys.executable, "-m", "opscope", "run", "-o", str(to), *options]
    command = [*opscope, "--", *LAUNCH, fault]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return to


def scanned(run: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    main(["scan", str(run), "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(
    ("fault", "place", "says"),
    [
        ("seed", ("aten::t.default", 0, 1), "never held the same"),
        ("skip", ("c10d::allreduce_.default", 1, 0), "rank 1 does not run this collective"),
    ],
)
def test_scan_names_the_call_at_which_ranks_go_apart(
    fault: str,
    place: tuple[str, int, int],
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = scanned(record(fault, tmp_path / "run"), capsys)["findings"][0]
    assert (first["kind"], first["op"], first["step"], first["rank"]) == ("rank-mismatch", *place)
    assert any(says in reason for reason in first["reasons"]), first["reasons"]


@pytest.mark.parametrize(("fault", "step"), [("none", None), ("weight", 1)])
def test_digests_are_enough_to_say_which_rank_parted_first(
    fault: str, step: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = scanned(record(fault, tmp_path / "run", "--levels", "digest"), capsys)["findings"]
    assert [(first["kind"], first["rank"], first["step"]) for first in found[:1]] == (
        [] if step is None else [("rank-mismatch", 1, step)]
    )


def test_the_rank_that_raised_is_told_before_those_that_it_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-m", "opscope", "run", "-o", str(tmp_path / "run"), "--", *LAUNCH]
    done = subprocess.run([*command, "raise"], capture_output=True, timeout=300, check=False)
    assert done.returncode == 1
    first = scanned(tmp_path / "run", capsys)["findings"][0]
    assert (first["kind"], first["rank"], first["step"]) == ("crash", 1, 1)
    assert f"ValueError: bad sample 17 ({PROGRAM}:" in first["reasons"][0]


def test_ranks_that_stay_together_are_clean_and_the_first_cause_across_ranks_comes_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    golden, target = record("none", tmp_path / "golden"), record("weight", tmp_path / "target")
    assert scanned(golden, capsys)["verdict"] == "clean"
    main(["compare", str(target), str(golden), "--json"])
    document = json.loads(capsys.readouterr().out)
    first = document["findings"][0]
    assert (first["rank"], first["step"], first["op"]) == (1, 1, "aten::mul_.Tensor")
    assert {
        finding["rank"]
        for finding in document["findings"]
        if finding["kind"] == "divergence-origin"
    } == {1}


@pytest.mark.parametrize("way", ["ddp", "wrapped", "fully_shard", "tensor_parallel"])
def test_two_recordings_of_ranks_that_share_a_model_agree(
    way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is read before it has arrived, and the losses are those of the program alone."""
    launch = [*LAUNCH[:-1], str(PROGRAM.with_name("sharded.py")), way]
    losses = []
    for prefix in (
        [],
        *(
            [sys.executable, "-m", "opscope", "run", "-o", str(tmp_path / name), "--"]
            for name in "ab"
        ),
    ):
        done = subprocess.run(
            [*prefix, *launch], capture_output=True, text=True, timeout=300, check=False
        )
        losses.append(sorted(done.stdout.splitlines()))
    assert len(losses[0]) == 24
    assert losses[1] == losses[0] == losses[2]
    main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json"])
    assert [
        (finding["op"], finding["reasons"])
        for finding in json.loads(capsys.readouterr().out)["findings"]
    ] == []


@pytest.mark.parametrize("way", ["wrapped", "fully_shard", "tensor_parallel"])
def test_ranks_that_share_one_models_parameters_are_clean(
    way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Memory that a collective is yet to fill is nobody's result, and what one sends is not what
    all ranks get.
    """
    launch = [*LAUNCH[:-1], str(PROGRAM.with_name("sharded.py")), way]
    command = [
        sys.executable,
        "-m",
        "opscope",
        "run",
        "--check",
        "-o",
        str(tmp_path / "run"),
        "--",
        *launch,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    document = scanned(tmp_path / "run", capsys)
    assert [(finding["op"], finding["reasons"]) for finding in document["findings"]] == []


def test_two_nodes_without_a_shared_disk_make_one_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    nodes = [tmp_path / "node0", tmp_path / "node1"]
    place = ["--nnodes=2", "--nproc-per-node=1", "--master-addr=127.0.0.1", f"--master-port={port}"]
    watched = [sys.executable, "-m", "opscope", "run", "-o"]
    launched = [
        subprocess.Popen(
            [
                *(*watched, str(node), "--", *LAUNCH[:3], *place, f"--node-rank={number}"),
                *(str(PROGRAM), "none"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for number, node in enumerate(nodes)
    ]
    assert [launcher.wait(300) for launcher in launched] == [0, 0]
    assert main(["merge", str(nodes[1]), "-o", str(tmp_path / "run")]) == 3
    assert main(["scan", str(tmp_path / "run")]) == 3
    assert "no records of rank 0 of 2" in capsys.readouterr().err
    assert main(["merge", *map(str, nodes), "-o", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    found = scanned(tmp_path / "run", capsys)
    assert (found["verdict"], found["complete"], found["summary"]["ranks"]) == (
        "clean",
        True,
        [0, 1],
    )
