# SPDX-License-Identifier: Apache-2.0
"""A process that answers lines: what it says, how it ends, and that it is there again after that."""

from __future__ import annotations

import os
import select
import sys

import pytest

from opscope.repro.answering import AnsweringProcess, ending

ECHO = "import sys\nfor line in sys.stdin: print(line.strip()[::-1], flush=True)"


def process_of(code: str) -> AnsweringProcess:
    return AnsweringProcess([sys.executable, "-I", "-c", code], os.environ)


def test_a_line_is_answered_by_a_line() -> None:
    with process_of(ECHO) as process:
        assert not process.running
        assert process.ask(b"abc") == b"cba\n"
        assert process.running
        process.send(b"xyz")
        assert select.select([process], [], [], 60)[0] == [process]
        assert process.receive() == b"zyx\n"
    assert not process.running


def test_one_that_ended_is_started_again() -> None:
    with process_of("import os; print(input(), flush=True); os.abort()") as process:
        assert process.ask(b"1") == b"1\n"
        assert process.ask(b"2") == b""
        assert ending(process.end(60)) == "signal 6"
        assert process.ask(b"3") == b"3\n"


def test_one_that_takes_too_long_is_ended() -> None:
    with process_of("import time; input(); time.sleep(600)") as process:
        with pytest.raises(TimeoutError, match=r"no answer after 0.2 s"):
            process.ask(b"1", 0.2)
        assert not process.running


def test_time_to_end_by_itself() -> None:
    tidy = "import sys\nfor line in sys.stdin: print(flush=True)\nsys.exit(7)"
    with process_of(tidy) as process:
        process.ask(b"1")
        assert ending(process.end(60)) == "exit code 7"
    assert process.end() == 0  # never ran again


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux alone waits for any process")
def test_what_it_started_ends_with_it() -> None:
    parent = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "for line in sys.stdin: print(child.pid, flush=True)"
    )
    with process_of(parent) as process:
        child = int(process.ask(b"1"))
    try:
        descriptor = os.pidfd_open(child)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], 60)[0]
    finally:
        os.close(descriptor)
