# SPDX-License-Identifier: Apache-2.0
"""SIGTERM, SIGHUP and an impatient Ctrl-C to the real command line: what it started ends with
it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

PATIENCE = 300.0
# A command that does not end when it is asked to, and has a child that is deaf to it; both tell
# their numbers.
TRAINING = """
import os, signal, subprocess, sys, time
from pathlib import Path
deaf = "import os, signal, sys, time\\nfrom pathlib import Path\\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\\n"
child = deaf + "Path(sys.argv[1]).write_text(str(os.getpid()))\\ntime.sleep(600)"
signal.signal(signal.SIGTERM, lambda *_: Path("asked").touch())
subprocess.Popen([sys.executable, "-c", child, "child.tmp"])
while not (Path("child.tmp").exists() and Path("child.tmp").read_text()):
    time.sleep(0.05)
Path("own.tmp").write_text(str(os.getpid()))
os.rename("child.tmp", "child")
os.rename("own.tmp", "own")
time.sleep(600)
"""


def until(holds: Callable[[], bool]) -> bool:
    """Whether it holds before patience is at its end."""
    end = time.monotonic() + PATIENCE
    while not holds() and time.monotonic() < end:
        time.sleep(0.05)
    return holds()


def runs(number: int) -> bool:
    """Whether a process is there and is no zombie that nobody has waited for yet."""
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc to ask")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_bisect_ends_its_trial(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    command = [
        sys.executable,
        "-m",
        "opscope",
        "bisect",
        "-o",
        "search",
        "--",
        sys.executable,
        "train.py",
    ]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as search:
        try:
            assert until((tmp_path / "own").exists)
            started = [int((tmp_path / name).read_text()) for name in ("own", "child")]
            assert all(map(runs, started))
            search.send_signal(number)
            assert until((tmp_path / "asked").exists)
            search.send_signal(number)  # does not wait for the trial any more
            said = search.communicate(timeout=PATIENCE)[1]
        finally:
            search.kill()
    assert search.returncode == 130, said
    assert "interrupted; the same command goes on where it was" in said
    assert until(lambda: not any(map(runs, started)))
