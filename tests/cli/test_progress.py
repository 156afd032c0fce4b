# SPDX-License-Identifier: Apache-2.0
"""How far a verb is: told to a person who waits, to nobody else."""

from __future__ import annotations

import io

import pytest

from opscope.cli.progress import Progress


class Terminal(io.StringIO):
    """Text that a person would see."""

    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, **options: object) -> str:
    monkeypatch.setattr("sys.stderr", stream)
    with Progress(**options) as progress:  # type: ignore[arg-type]
        for done in range(3):
            progress("runs/\x1b[2Jdemo", done, 3)
    return stream.getvalue()


def test_a_terminal_sees_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    text = shown(monkeypatch, Terminal(), patience=0.0)
    assert "/3" in text
    assert "\x1b[2J" not in text


def test_nothing_is_said_of_what_is_soon_over_nor_to_a_pipe_nor_beside_json(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, Terminal()) == ""
    assert shown(monkeypatch, io.StringIO(), patience=0.0) == ""
    assert shown(monkeypatch, Terminal(), quiet=True, patience=0.0) == ""
