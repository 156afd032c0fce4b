# SPDX-License-Identifier: Apache-2.0
"""One process's recording: takes rows from a recorder, hands them to the run's writer, knows when
to stop.

A session never raises into the program it watches. Its writer works on a background thread; a
failure there, or in the recorder, ends recording with one line on stderr.
"""

from __future__ import annotations

import os
import sys
import textwrap
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

from opscope.record.own_code import told
from opscope.record.rank import exchanging, known_rank, known_world
from opscope.run.contain import contain, ignore, reason, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from opscope.record.config import RecordConfig
    from opscope.record.steps import Steps
    from opscope.run.store.writer import ProcessWriter


# for which the rows of steps that have ended may wait, so that short steps go to the disk together
STEP_SECONDS = 0.1
MOST_MISSED = 100  # calls that could not be recorded; what then still could is not worth their time


class Recorder(Protocol):
    """What a session needs of a recorder."""

    book: Any
    beneath: Any
    steps: Steps
    suspicious_step: int | None  # the last one to keep whatever its rows show

    def start(self) -> None: ...
    def pause(self) -> None: ...
    def stop(self) -> None: ...
    def exit_modes(self) -> None: ...
    def abandon(self) -> None: ...
    def scaler_updated(self) -> None: ...
    def fetch(self, *, end: bool) -> bool: ...
    def step_marked(self) -> None: ...
    def settings(self) -> dict[str, Any]: ...
    def training(self) -> dict[str, Any]: ...
    def batches(self, *, process: int, rank: int) -> dict[str, Any]: ...


LONGEST_ERROR = 1 << 14  # of a device, in characters
MOST_NOTES = 64


class Session:
    """Recording of this process into one run directory."""

    def __init__(self, config: RecordConfig, writer: ProcessWriter, *, process: int = 0) -> None:
        self.config = config
        self.writer = writer
        self.process = process
        self.pid = os.getpid()
        self.exit_code: int | None = None
        self.closed = False
        self.recorder: Recorder | None = None
        self._leave: Callable[[], None] = lambda: None
        self.skipped: list[int] = []
        self.flagged: int | None = None  # the last step in which something overflowed
        self.cleanup = ExitStack()
        self.idle: float | None = None
        self._started = 0.0
        self._captured = 0
        self._heard = time.monotonic()
        self._quiet = 0.0
        self._handing = threading.RLock()  # a signal handler of the program may end a step too
        self._handed = 0.0
        self._segment = max(1, (config.keep_last or 1 << 30) // 4)  # steps of the tables
        self._ended: list[
            tuple[int, bool]
        ] = []  # steps whose rows wait, and whether they have a finding
        writer.idle = self._hand_over_when_idle
        self._missed = 0
        self._first_missed = ""

    # -- life --------------------------------------------------------------------------------------

    def start(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._started = time.perf_counter()
        self._captured = 0 if graphs_remain() else captured_calls()
        recorder.start()
        if not self._wants_recording():
            recorder.pause()

    def close(self, exit_code: int | None = None) -> None:
        """Stop recording and write out what is left; a second call takes off what the first, inside
        of a call, could not.
        """
        if self.closed:
            contain(self._note, self._leave)
            return
        self.closed = True
        for part in (
            self.cleanup.close,
            self._write_rest,
            lambda: self.writer.close(self.exit_code if exit_code is None else exit_code),
        ):
            contain(self._note, part)

    def _write_rest(self) -> None:
        recorder = self.recorder
        if recorder is None:
            return
        self._leave = recorder.exit_modes  # which waits where a call ended the recording
        recorder.stop()
        self.drain(end=True)
        self.writer.waited += recorder.book.gave_up
        self.writer.update(**self._facts(recorder))
        self.recorder = None

    def _facts(self, recorder: Recorder) -> dict[str, Any]:
        """What process.json says of the whole recording."""
        beneath = _beneath(recorder)
        return {
            "overhead": self._overhead(recorder, beneath),
            "hidden_calls": max(captured_calls() - self._captured, 0),
            "steps": recorder.book.step + recorder.steps.begun,
            "skipped_steps": tuple(self.skipped),
            "idle": self.idle,
            "missed": f"{self._missed} calls could not be recorded, the first {self._first_missed}"
            if self._missed
            else None,
            "torch": self._about(recorder, settings=recorder.book.step == 0),
            **beneath,
        }

    def _overhead(self, recorder: Recorder, beneath: Mapping[str, Any]) -> float | None:
        """Time since the beginning beside that without the recorder's own work, and that of
        checks, which beneath tells.
        """
        wall = time.perf_counter() - self._started
        checks = beneath.get("checked", {}).get("seconds", 0.0)
        watching = recorder.book.watching + checks
        return round(wall / max(wall - watching, 1e-9), 4) if 0 < watching < wall else None

    def _about(self, recorder: Recorder, *, settings: bool) -> dict[str, Any]:
        """What process.json says of torch: facts of the training, and its settings if these are
        wanted.
        """
        training = recorder.training()
        return {
            **self.writer.process.torch,
            **(recorder.settings() if settings else {}),
            **({"training": training} if training else {}),
        }

    @property
    def rank(self) -> int:
        """Rank of this process: after its process group is gone, what it was."""
        known = known_rank(os.environ)
        return self.writer.process.rank if known is None else known

    @property
    def digest(self) -> bool:
        """Whether this rank is one of those that are recorded by digests alone."""
        config, selection = self.config, self.config.selection
        return config.digest and (selection.ranks is None or not selection.wants_rank(self.rank))

    def drop_after_fork(self) -> None:
        """In a forked child: watch nothing, write nothing."""
        if self.closed:
            return
        self.closed = True
        if self.recorder is not None:
            contain(ignore, self.recorder.abandon)
        contain(ignore, self.writer.drop_after_fork)

    def fail(self, error: BaseException) -> None:
        """Recording ends, the program goes on."""
        if not self.closed:
            self._note(error)
            self.close()

    def _note(self, error: BaseException) -> None:
        """Say why recording ended, unless that has been said, and have the run say it."""
        if not self._said:
            tell(f"recording ended: {reason(error)}; the program goes on")
            self.writer.update(failed=reason(error))

    @property
    def _said(self) -> bool:
        """Whether it has been said that recording ended."""
        return self.writer.failed is not None or self.writer.process.failed is not None

    def device_lost(self, device: str, error: BaseException) -> None:
        """A device can be asked no more: its tensors have no statistics from now on, their calls
        are still recorded.

        Drivers tell the whole of an error once, to whoever asks first: it is printed for the
        program's user, and kept for scan.
        """
        why, _, rest = str(error).partition("\n")
        tell(
            f"statistics of {device} end here: {type(error).__name__}: {why}; calls are still "
            f"recorded{textwrap.indent(chr(10) + rest, '  ') if rest else ''}"
        )
        self.note("device errors", device, str(error)[:LONGEST_ERROR])

    def missed(self, op: str, error: BaseException) -> bool:
        """A call could not be recorded, which is said once; recording ends when it happens too
        often. Whether it lasts.
        """
        if self.closed or self._said:
            self.fail(error)
            return False
        self._missed += 1
        if self._missed == 1:
            self._first_missed = f"{op}: {reason(error)}"[:500]
            tell(f"a call could not be recorded whole ({self._first_missed}); recording goes on")
        if self._missed >= MOST_MISSED:
            self.fail(error)
        return not self.closed

    def pause(self) -> None:
        """Watch nothing until resume()."""
        contain(self.fail, self._pause)

    def _pause(self) -> None:
        if self.recorder is not None:
            self.drain(end=True)
            self.recorder.stop()

    def resume(self) -> None:
        if self.recorder is not None and not self.closed:
            contain(self.fail, self.recorder.start)

    def mark_step(self) -> None:
        """The program says that a step is over."""
        if self.recorder is not None and not self.closed:
            contain(self.fail, self.recorder.step_marked)

    # -- what recorders tell -----------------------------------------------------------------------

    def scaler_updated(self) -> None:
        """GradScaler.update ran."""
        if self.recorder is not None:
            self.recorder.scaler_updated()

    def step_ended(self, skipped: bool) -> None:  # noqa: FBT001 - callback of record.steps
        """A training step is over: write it, and stop where the user wanted."""
        recorder = self.recorder
        if recorder is None or self.closed:
            return
        book, ended = recorder.book, recorder.book.step
        accused = recorder.beneath is not None and recorder.beneath.step_ends()
        recorder.fetch(end=True)
        finding = book.overflowed and not skipped
        if skipped:
            self.skipped.append(ended)
        kept = finding or accused or recorder.suspicious_step == ended
        if kept:
            self.flagged = ended
        self._ended.append((ended, kept))
        if self._step_due(recorder, ended, finding=kept):
            self.drain(end=True)
        else:
            self._hear()
        if self.recorder is None:
            return  # the disk ended the recording
        # Of the first step, since the program has set what it wants by now; of the 2nd, 4th, 8th …,
        # since it may be killed before it ends.
        if ended & (ended - 1) == 0:
            about = self._about(recorder, settings=ended == 0)
            overhead = self._overhead(recorder, _beneath(recorder))
            self.writer.update(torch=about, overhead=overhead)
        book.next_step()
        if finding and self.config.on_overflow == "stop":
            self._stop_program(1)
        last = self.config.selection.last_step
        if last is not None and ended >= last:
            self.close()
            if self.config.stop_after:
                self._stop_program(0)
        elif self._wants_recording():
            recorder.start()
        else:
            recorder.pause()

    def note(self, kind: str, key: str, value: str | dict[str, Any]) -> None:
        """Write something rare about the program into process.json at once; of each kind the first
        MOST_NOTES.
        """
        known = self.writer.process.torch.get(kind, {})
        if key not in known and len(known) < MOST_NOTES:
            self.writer.update(torch={**self.writer.process.torch, kind: {**known, key: value}})

    def state(self, kind: str, facts: dict[str, Any]) -> None:
        """Put into process.json at once what is known by now of something that changes."""
        self.writer.update(torch={**self.writer.process.torch, kind: facts})

    def keep_value(
        self, memory: memoryview, *, dtype: str, shape: tuple[int, ...], seal: bool
    ) -> tuple[str, str] | None:
        reference = self.writer.keep_value(memory, dtype=dtype, shape=shape, seal=seal)
        return (reference.shard, reference.key) if reference is not None else None

    # -- inner -------------------------------------------------------------------------------------

    def _wants_recording(self) -> bool:
        config, selection = self.config, self.config.selection
        step = self.recorder.book.step if self.recorder is not None else 0
        return selection.wants_step(step) and (
            config.digest or selection.ranks is None or selection.wants_rank(self.rank)
        )

    def raised(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        """An exception that nobody caught ends the program."""
        if issubclass(kind, KeyboardInterrupt):
            self.exit_code = 130
            self.interrupted()
        else:
            self.exit_code = 1
            self.writer.update(uncaught=told(error, trace))

    def interrupted(self) -> None:
        """Ctrl-C reached the program: note for how long no call had ended."""
        since = time.monotonic() - self._heard
        # The interrupted call itself was drained just now: the silence was before it.
        self.idle = round(max(since, self._quiet if since < 1 else 0.0), 1)

    def drain(self, *, end: bool = False) -> None:
        """Hand finished rows to the writer; at the end of a step (or of all) also those that wait
        for a device.
        """
        self._hear()
        if self.recorder is None or not self.recorder.fetch(end=end):
            return
        with self._handing:
            self._hand_over(self.recorder)
        if self.writer.failed is not None and not self.closed:
            self.close()  # the writer has said why

    def _hear(self) -> None:
        """A call has ended."""
        now = time.monotonic()
        self._quiet, self._heard = now - self._heard, now

    def _step_due(self, recorder: Recorder, step: int, *, finding: bool) -> bool:
        """Whether the rows of the step that has just ended, and of those before it that wait, are
        to be handed over now.

        Those of the first step are, those with a finding, the last ones of a segment of the tables,
        and all where ranks exchange
        tensors: what has arrived by then is told by the thread that makes the calls, never by the
        writer's.
        """
        alone = recorder.beneath is None and not exchanging()
        waited = time.monotonic() - self._handed
        return (
            finding
            or step == 0
            or not alone
            or (step + 1) % self._segment == 0
            or waited >= STEP_SECONDS
        )

    def _hand_over(self, recorder: Recorder) -> None:
        self._handed = time.monotonic()
        rank, process = self.rank, self.writer.process
        world = known_world(os.environ) or process.world
        if (rank, world) != (process.rank, process.world):
            # torch.distributed has been initialised since
            self.writer.update(rank=rank, world=world)
        ended = self._ended[:]  # another thread may be adding more
        del self._ended[: len(ended)]
        for table, batch in recorder.batches(process=self.process, rank=rank).items():
            self.writer.append(table, batch, step=recorder.book.step)
        self.writer.end_steps(ended)

    def _hand_over_when_idle(self) -> None:
        """On the writer's thread: a program that makes no more calls has its last steps on disk."""
        recorder = self.recorder
        if (
            recorder is None
            or self.closed
            or recorder.book.pending
            or not self._ended
            or exchanging()
        ):
            return
        if not self._handing.acquire(blocking=False):
            return
        try:
            self._hand_over(recorder)
        finally:
            self._handing.release()

    def _stop_program(self, code: int) -> None:
        self.close(code)
        raise SystemExit(code)


def _beneath(recorder: Recorder) -> Mapping[str, Any]:
    """What process.json says of checks and substitutes."""
    return recorder.beneath.facts() if recorder.beneath is not None else {}


def captured_calls() -> int:
    """Operators that torch.compile took into graphs since the process began, by dynamo's own
    count.
    """
    dynamo = sys.modules.get("torch._dynamo.utils")
    return int(dynamo.counters["stats"]["calls_captured"]) if dynamo is not None else 0


def graphs_remain() -> bool:
    """Whether a graph compiled before this moment may still run; torch.compiler.reset() drops them
    all.
    """
    dynamo = sys.modules.get("torch._dynamo.convert_frame")
    return dynamo is not None and bool(getattr(dynamo.output_codes, "seen_ids", True))
