# SPDX-License-Identifier: Apache-2.0
"""What a program, or another process, takes away from a recording: its directory, its descriptors,
its files, its life.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.record.test_endings import PATIENCE, TRAINING

pytestmark = pytest.mark.zoo

REMOVED = """
    import shutil
    shutil.rmtree(os.environ["OPSCOPE_RUN"], ignore_errors=True)  # the writer deletes old files beside it
"""
MOVED = """
    os.rename(os.environ["OPSCOPE_RUN"], os.environ["OPSCOPE_RUN"] + "-moved")
    os.mkdir(os.environ["OPSCOPE_RUN"])
"""
CLOSED = """
    import time
    time.sleep(1.5)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    mine = [open(f"mine-{i}", "w+b") for i in range(1000)]
"""
CUT = """
    from pathlib import Path
    for path in Path(os.environ["OPSCOPE_RUN"]).rglob("*"):
        if path.is_file() and path.name != "run.json":
            os.truncate(path, 0)
"""


def watched(
    folder: Path, middle: str, ending: str, *options: str
) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(
        TRAINING
        + "for i in range(40):\n    print(step(), flush=True)\n    if i == 5:\n        pass\n"
        + textwrap.indent(textwrap.dedent(middle), "        ")
        + f"\n{ending}\n",
        encoding="utf-8",
    )
    words = [
        sys.executable,
        "-m",
        "opscope",
        "run",
        "-o",
        "run",
        *options,
        "--",
        sys.executable,
        "train.py",
    ]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.parametrize(
    ("middle", "ending", "code"),
    [(REMOVED, "os._exit(3)", 3), (MOVED, "sys.exit(4)", 4)],
)
def test_the_run_directory_is_removed_or_replaced(
    tmp_path: Path, middle: str, ending: str, code: int
) -> None:
    done = watched(tmp_path, middle, ending, "--keep", "last:4")
    assert (done.returncode, len(done.stdout.splitlines())) == (code, 40), done.stderr
    lines = [line for line in done.stderr.splitlines() if "removed or replaced" in line]
    assert len(lines) == 2, done.stderr  # the process, and the launcher
    assert "Traceback" not in done.stderr
    assert "PYTHONPATH" not in done.stderr


def test_descriptors_are_closed_and_their_numbers_used_again(tmp_path: Path) -> None:
    """Not a byte of the recording lands in a file of the program."""
    done = watched(
        tmp_path,
        CLOSED,
        "print(sum(os.fstat(f.fileno()).st_size for f in mine))\nsys.exit(5)",
        "--values",
        "full",
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (5, "0"), done.stderr
    assert (
        next(line for line in done.stderr.splitlines() if "recording ended" in line).count(
            "the program closed its descriptor"
        )
        == 1
    )
    assert (
        len([line for line in done.stderr.splitlines() if line.startswith("opscope: ")]) == 2
    )  # where it records, and this
    assert scanned(tmp_path)[1] is False


def test_every_file_is_cut_short_by_somebody_else(tmp_path: Path) -> None:
    done = watched(tmp_path, CUT, "sys.exit(6)", "--values", "full", "--journal", "aten::addmm")
    assert (done.returncode, len(done.stdout.splitlines())) == (6, 40), done.stderr
    assert scanned(tmp_path)[1] is False


def test_killed_by_itself(tmp_path: Path) -> None:
    done = watched(tmp_path, "", "os.kill(os.getpid(), 9)", "--values", "full")
    assert done.returncode == 137
    assert scanned(tmp_path) == (3, False)


def scanned(folder: Path) -> tuple[int, bool]:
    done = subprocess.run(
        [sys.executable, "-m", "opscope", "scan", "run", "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return done.returncode, json.loads(done.stdout)["complete"]


@pytest.mark.sample
def test_nothing_was_recorded(tmp_path: Path) -> None:
    """A disk without room for a process's directory: that nothing was found is no answer."""
    from opscope.run.store.layout import create_run, seal_run

    seal_run(create_run(tmp_path / "run"))
    assert scanned(tmp_path) == (3, False)
