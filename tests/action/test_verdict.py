# SPDX-License-Identifier: Apache-2.0
"""The script of the GitHub Action, on real runs and before a server that speaks as GitHub does."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.cli.cli_runs import PROGRAM, environment, write_run

ACTION = Path(__file__).parents[2] / "action"


class Comments(HTTPServer):
    """The comments of pull request 7, kept as GitHub keeps them."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.kept: list[dict[str, Any]] = [{"id": 1, "body": "looks good"}]
        self.refuse = False


class Handler(BaseHTTPRequestHandler):
    server: Comments

    def do_GET(self) -> None:
        assert self.path == "/repos/o/r/issues/7/comments?per_page=100"
        self._answer(200, self.server.kept)

    def do_POST(self) -> None:
        assert self.path == "/repos/o/r/issues/7/comments"
        if self.server.refuse:
            self._answer(403, {})
            return
        self.server.kept.append({"id": len(self.server.kept) + 1, "body": self._body()})
        self._answer(201, self.server.kept[-1])

    def do_PATCH(self) -> None:
        number = int(self.path.rpartition("/")[2])
        found = next(one for one in self.server.kept if one["id"] == number)
        found["body"] = self._body()
        self._answer(200, found)

    def _body(self) -> str:
        assert self.headers["Authorization"] == "Bearer secret"
        body: str = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]
        return body

    def _answer(self, code: int, document: object) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(document).encode())

    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - the name is Python's


@pytest.fixture
def github() -> Iterator[Comments]:
    server = Comments()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def act(folder: Path, github: Comments, **more: str) -> subprocess.CompletedProcess[str]:
    event = folder / "event.json"
    event.write_text(json.dumps({"pull_request": {"number": 7}}))
    return subprocess.run(
        [sys.executable, str(ACTION / "verdict.py"), "run", "golden"],
        cwd=folder,
        env=environment(
            GITHUB_API_URL=f"http://127.0.0.1:{github.server_port}",
            GITHUB_REPOSITORY="o/r",
            GITHUB_EVENT_PATH=str(event),
            GITHUB_STEP_SUMMARY=str(folder / "summary.md"),
            GITHUB_OUTPUT=str(folder / "output"),
            RUNNER_TEMP=str(folder),
            TOKEN="secret",
            **more,
        ),
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A folder with a run that has a finding."""
    program = tmp_path / "train.py"
    program.write_text(PROGRAM, encoding="utf-8")
    write_run(tmp_path / "run", program)
    return tmp_path


@pytest.mark.zoo
def test_a_pull_request_has_one_comment_which_is_written_anew(
    recorded: Path, github: Comments
) -> None:
    first = act(recorded, github)
    assert first.returncode == 1, first.stderr
    assert "comment written\n" in first.stdout
    assert re.search(r"^::error file=.*train.py,line=5", first.stdout, re.MULTILINE)
    assert "No run of the base branch" in github.kept[-1]["body"]
    assert "aten::" in github.kept[-1]["body"]
    assert (recorded / "summary.md").read_text() == github.kept[-1]["body"]
    assert "code=1" in (recorded / "output").read_text()

    shutil.copytree(recorded / "run", recorded / "golden")
    again = act(recorded, github, FAIL_ON="divergence")
    assert again.returncode == 0, again.stderr  # the fault is the base branch's as well
    assert "comment written anew" in again.stdout
    assert len(github.kept) == 2
    assert "the runs agree" in github.kept[-1]["body"]


@pytest.mark.zoo
def test_where_the_token_may_not_write_the_job_says_so_and_goes_on(
    recorded: Path, github: Comments
) -> None:
    github.refuse = True
    done = act(recorded, github, FAIL_ON="never")
    assert done.returncode == 0, done.stderr
    assert "no comment: HTTP Error 403" in done.stdout
    assert len(github.kept) == 1


def test_a_run_that_is_none_is_said(tmp_path: Path, github: Comments) -> None:
    (tmp_path / "run").mkdir()
    done = act(tmp_path, github)
    assert done.returncode not in {0, 3}
    assert "run" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_the_metadata_uses_is_there() -> None:
    text = (ACTION / "action.yml").read_text(encoding="utf-8")
    inputs = text.partition("inputs:")[2].partition("outputs:")[0]
    named = set(re.findall(r"^  ([\w-]+):$", inputs, re.MULTILINE))
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == named
    assert "verdict.py" in text
    assert os.access(ACTION / "verdict.py", os.R_OK)
