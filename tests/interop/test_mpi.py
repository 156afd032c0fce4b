# SPDX-License-Identifier: Apache-2.0
"""Ranks that Open MPI starts: one launcher around all, and one on every rank, merged."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import opscope

TRAIN = Path(__file__).with_name("mpi_train.py")
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun"),
]
MPI = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2"]
OPSCOPE = [sys.executable, "-m", "opscope"]


def run(*words: object) -> None:
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [*map(str, words)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def training() -> list[object]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return [sys.executable, TRAIN, free.getsockname()[1]]


def is_named(path: Path) -> None:
    document = opscope.scan(path)
    first = document.findings[0]
    assert (first.rank, first.step) == (1, 1)
    assert (document.complete, document.summary["ranks"]) == (True, [0, 1])


def test_one_launcher_around_mpirun(tmp_path: Path) -> None:
    run(*OPSCOPE, "run", "-o", tmp_path / "run", "--", *MPI, *training())
    is_named(tmp_path / "run")


def test_a_launcher_on_every_rank(tmp_path: Path) -> None:
    part = f'exec "$@" -o {tmp_path}/part-$OMPI_COMM_WORLD_RANK -- '
    command = part + " ".join(map(str, training()))
    run(*MPI, "bash", "-c", command, "bash", *OPSCOPE, "run")
    run(*OPSCOPE, "merge", tmp_path / "part-0", tmp_path / "part-1", "-o", tmp_path / "run")
    is_named(tmp_path / "run")
