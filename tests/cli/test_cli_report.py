# SPDX-License-Identifier: Apache-2.0
"""`opscope report` and `opscope serve`: a file that holds the verdict, a server that ends when told
to.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from cli_runs import Command, environment

from opscope.cli import main


def test_report_writes_one_file_and_a_sibling_where_it_exists(
    command: Command, run: Path, tmp_path: Path
) -> None:
    done = command("report", run, "-o", "x.html")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "x.html\n"
    text = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert "first overflow" in text  # what is read without scripts
    assert "blocks.0:mm#1" in text
    again = command("report", run, "-o", "x.html")
    assert again.stdout == "x-2.html\n"
    assert "exists" in again.stderr


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "begin"),
    [
        ("x.md", "## overflow: `aten::mm.default`"),
        ("x.SVG", "<svg xmlns="),
        ("x.json", '[\n{"ph": "M"'),
    ],
)
def test_report_writes_what_the_ending_says(name: str, begin: str, run: Path, here: Path) -> None:
    assert main(["report", str(run), "-o", name]) == 0
    text = (here / name).read_text(encoding="utf-8")
    assert text.startswith(begin)
    assert "blocks.0:mm#1" in text


def test_report_writes_what_it_is_told_to(run: Path, here: Path) -> None:
    assert main(["report", str(run), "--format", "md"]) == 0
    assert (here / "report.md").read_text(encoding="utf-8").startswith("## ")
    assert main(["report", str(run), "--format", "svg", "-o", "picture"]) == 0
    assert (here / "picture").read_text(encoding="utf-8").startswith("<svg")
    assert main(["report", str(run), "--format", "pdf"]) == 2


def test_show_draws_a_call(run: Path, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(run), "blocks.0:mm#1", "--plot", "x.svg"]) == 0
    assert "blocks.0:mm#1" in (here / "x.svg").read_text(encoding="utf-8")
    assert "x.svg" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["blocks.0:mm#1", "--plot", "x.gif"], ["--plot", "x.svg"]])
def test_show_draws_one_call_as_svg_and_nothing_else(
    words: list[str], run: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(run), *words]) == 2
    assert "name one CALL, and a file that ends in .svg" in capsys.readouterr().err


def test_report_refuses_what_it_does_not_know(command: Command, run: Path) -> None:
    done = command("report", run, "-o", "x.html", "--redact", "sources,everything")
    assert done.returncode == 2
    assert "--redact everything: write sources, paths, values" in done.stderr
    done = command("report", run, "-o", "x.html", "--colour", "no_such_column")
    assert done.returncode == 2
    assert "no_such_column" in done.stderr
    assert done.stderr.count("\n") == 1


def test_report_redacted_has_no_path_of_this_machine(
    command: Command, run: Path, tmp_path: Path
) -> None:
    done = command("report", run, "-o", "x.html", "--redact", "paths,sources,values")
    assert done.returncode == 0, done.stderr
    assert "train.py" not in (tmp_path / "x.html").read_text(encoding="utf-8")


@pytest.fixture
def taken() -> socket.socket:
    """A port that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def test_serve_passes_by_a_port_that_is_taken_and_asks_for_its_token(
    run: Path, taken: socket.socket, tmp_path: Path
) -> None:
    pytest.importorskip("uvicorn")
    number = taken.getsockname()[1]
    words = [sys.executable, "-m", "opscope", "serve", str(run), "--port", str(number)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        words, env=environment(), cwd=tmp_path, stdout=pipe, stderr=pipe, text=True
    ) as served:
        assert served.stdout is not None
        address = served.stdout.readline().strip()
        try:
            assert not address.startswith(f"http://127.0.0.1:{number}/")
            with urllib.request.urlopen(f"{address}0/data/verdict", timeout=60) as answer:
                assert b"blocks.0:mm#1" in answer.read()
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(address.rsplit("/", 2)[0] + "/0/data/verdict", timeout=60)
        finally:
            served.send_signal(signal.SIGINT)
        _, said = served.communicate(timeout=60)
    assert f"port {number} is taken" in said


def test_serve_says_what_cannot_be_read_before_it_listens(command: Command) -> None:
    pytest.importorskip("uvicorn")
    done = command("serve", "nowhere")
    assert done.returncode == 2
    assert done.stdout == ""
    assert command("serve").returncode == 2
