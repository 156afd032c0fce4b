# SPDX-License-Identifier: Apache-2.0
"""A signal handler of the program that raises while the writer's code runs: at every moment at
which CPython may call one, the program hears of it and the writer can still be closed.
"""

from __future__ import annotations

import dis
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from opscope.run.contain import contain
from opscope.run.store.layout import process_facts
from opscope.run.store.writer import ProcessWriter

SECONDS = 60


class Alarm:
    """A tracer that raises at one moment: where a function is entered, after a call returned, where
    a loop begins again.
    """

    def __init__(self, at: int, kind: type[Exception]) -> None:
        self.left, self.kind, self.place = at, kind, ""
        self._last: dict[FrameType, int] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        name = frame.f_code.co_filename
        if "opscope" not in name and not name.endswith("threading.py"):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "call":
            self._moment(frame)
        elif event == "opcode":
            before, self._last[frame] = self._last.get(frame), frame.f_lasti
            if before is not None and dis.opname[frame.f_code.co_code[before]].startswith(
                ("CALL", "JUMP_BACKWARD")
            ):
                self._moment(frame)
        return self

    def _moment(self, frame: FrameType) -> None:
        self.left -= 1
        if self.left == 0:
            self.place = f"{frame.f_code.co_qualname}:{frame.f_lineno}"
            sys.settrace(None)
            self._handle(signal.SIGALRM, frame)

    def _handle(self, number: int, frame: FrameType) -> None:
        raise self.kind("time is up")


def interrupted(path: Path, alarm: Alarm) -> tuple[ProcessWriter, bool]:
    """A writer that was at work when the alarm came, and whether the program heard of it."""
    path.mkdir()
    writer = ProcessWriter(path, process_facts())

    def work() -> None:
        writer.keep_value(b"x" * 64, dtype="float32", shape=(16,), seal=True)
        writer.end_steps([(0, False)])
        writer.flush()

    before = sys.gettrace()
    sys.settrace(alarm)
    try:
        contain(lambda _: None, work)
    except alarm.kind:
        return writer, True
    finally:
        sys.settrace(before)
    return writer, False


class Expired(Exception):
    """What a handler raises; not RuntimeError, which Condition.notify of CPython takes for its own."""


@pytest.mark.parametrize("kind", [Expired, TimeoutError])
def test_no_alarm_is_lost_and_no_lock_is_left(
    tmp_path: Path, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "opscope.kernels._recorder", raising=False)  # it ends tracing
    for at in range(1, 1000):
        alarm = Alarm(at, kind)
        writer, heard = interrupted(tmp_path / str(at), alarm)
        closing = threading.Thread(target=writer.close, daemon=True)
        closing.start()
        closing.join(SECONDS)
        assert not closing.is_alive(), f"the lock was left at {alarm.place}"
        if not alarm.place:
            break
        assert heard, f"lost at {alarm.place}"
    assert at > 100
