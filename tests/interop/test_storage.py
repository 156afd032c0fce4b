# SPDX-License-Identifier: Apache-2.0
"""Runs in an object store (moto's server, which emulates S3), in the interpreter that
OPSCOPE_STORAGE_PYTHON names: written while the program runs, read by ranges, what a node that is
killed leaves, and a store that goes away.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PYTHON = os.environ.get("OPSCOPE_STORAGE_PYTHON")
TRAIN = Path(__file__).with_name("storage_train.py")
SOURCE = Path(__file__).parents[2] / "src"
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(PYTHON is None, reason="OPSCOPE_STORAGE_PYTHON names no interpreter"),
]


@contextlib.contextmanager
def served() -> Iterator[tuple[subprocess.Popen[bytes], dict[str, str]]]:
    """A server with the bucket `runs`, and the variables by which it is found."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(PYTHON), "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    environment = {
        **os.environ,
        "PYTHONPATH": str(SOURCE),
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_ENDPOINT_URL": url,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_MAX_ATTEMPTS": "1",
    }
    try:
        for _ in range(240):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(
                    urllib.request.Request(f"{url}/runs", method="PUT"), timeout=5
                ).close()
                break
            time.sleep(0.25)
        yield server, environment
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def store() -> Iterator[tuple[subprocess.Popen[bytes], dict[str, str]]]:
    with served() as found:
        yield found


def opscope(environment: dict[str, str], *words: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(PYTHON), "-m", "opscope", *words],
        env=environment,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def scanned(environment: dict[str, str], url: str, cwd: Path) -> tuple[int, dict[str, Any]]:
    asked = opscope(environment, "scan", url, "--json", cwd=cwd)
    said, errors = asked.communicate(timeout=240)
    assert said, errors
    document: dict[str, Any] = json.loads(said)
    return asked.returncode, document


def recording(
    environment: dict[str, str], steps: int, cwd: Path, *more: str
) -> subprocess.Popen[str]:
    words = ("run", "-o", "s3://runs/one", *more, "--", sys.executable, str(TRAIN), str(steps))
    return opscope(environment, *words, cwd=cwd)


def test_a_run_is_written_there_while_the_program_runs_and_read_by_ranges(
    store: tuple[subprocess.Popen[bytes], dict[str, str]], tmp_path: Path
) -> None:
    _, environment = store
    bare = subprocess.run([sys.executable, str(TRAIN), "16"], capture_output=True, text=True)
    running = recording(environment, 16, tmp_path, "--values", "full")
    early: dict[str, Any] = {}
    while running.poll() is None and not early.get("summary", {}).get("steps"):
        time.sleep(1)
        asked = opscope(environment, "scan", "s3://runs/one", "--json", cwd=tmp_path)
        early = json.loads(asked.communicate(timeout=240)[0] or "{}")
    said, errors = running.communicate(timeout=240)
    assert (running.returncode, said) == (0, bare.stdout), errors
    assert "shipped to s3://runs/one" in errors
    assert early["verdict"] == "clean"
    assert early["complete"] is False  # it was still running
    code, document = scanned(environment, "s3://runs/one", tmp_path)
    assert (code, document["verdict"], document["complete"]) == (0, "clean", True)
    beside = opscope(environment, "compare", "s3://runs/one", "runs/one", "--json", cwd=tmp_path)
    compared = json.loads(beside.communicate(timeout=240)[0])
    assert (compared["verdict"], compared["complete"]) == ("clean", True)


def test_what_was_shipped_is_there_when_the_node_is_killed(
    store: tuple[subprocess.Popen[bytes], dict[str, str]], tmp_path: Path
) -> None:
    _, environment = store
    running = recording(environment, 400, tmp_path)
    assert running.stdout is not None
    for line in running.stdout:
        if line.startswith("24 "):
            break
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate()
    code, document = scanned(environment, "s3://runs/one", tmp_path)
    assert (code, document["complete"]) == (3, False)
    assert document["summary"]["steps"] >= 5
    assert any("s3://runs/one" in line for line in document["summary"]["warnings"])


def test_a_store_that_goes_away_harms_nobody(
    store: tuple[subprocess.Popen[bytes], dict[str, str]], tmp_path: Path
) -> None:
    server, environment = store
    running = recording(environment, 12, tmp_path)
    assert running.stdout is not None
    assert next(iter(running.stdout)).startswith("0 ")
    server.kill()
    said, errors = running.communicate(timeout=300)
    assert (running.returncode, len(said.splitlines())) == (0, 11), errors
    assert "not all was shipped" in errors
    assert "the run is in runs/one" in errors
    code, document = scanned(environment, "runs/one", tmp_path)
    assert (code, document["complete"]) == (0, True)
