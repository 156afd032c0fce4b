# SPDX-License-Identifier: Apache-2.0
"""How far a verb is: told to a person who waits, to nobody else."""

from __future__ import annotations

import io
import time

import pytest

from opscope.cli.progress import Progress


class Terminal(io.StringIO):
    """Text that a person would see."""

    def isatty(self) -> bool:
        return True


def shown(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, *, awaited: str = "", **options: object
) -> str:
    monkeypatch.setattr("sys.stderr", stream)
    with Progress(**options) as progress:  # type: ignore[arg-type]
        for done in range(3):
            progress("runs/\x1b[2Jdemo", done, 3)
        if awaited:
            wait_for(awaited, stream)
    return stream.getvalue()


def wait_for(text: str, stream: io.StringIO) -> None:
    """Until a text stands in a stream, which another thread writes; a minute at most."""
    ends = time.monotonic() + 60
    while text not in stream.getvalue() and time.monotonic() < ends:
        time.sleep(0.01)


def test_a_terminal_sees_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    text = shown(monkeypatch, Terminal(), awaited="/3", patience=0.0)
    assert "/3" in text
    assert "\x1b[2J" not in text


def test_nothing_is_said_of_what_is_soon_over_nor_to_a_pipe_nor_beside_json(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert shown(monkeypatch, Terminal()) == ""
    assert shown(monkeypatch, io.StringIO(), patience=0.0) == ""
    assert shown(monkeypatch, Terminal(), quiet=True, patience=0.0) == ""


def test_a_part_that_takes_long_is_shown_before_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    with Progress(patience=0.01) as progress:
        progress("a long part", 0, 7)
        wait_for("/7", stream)
        seen = stream.getvalue()
    assert "0/7" in seen
