# SPDX-License-Identifier: Apache-2.0
"""Writing one process of a native run while the program runs.

Rows go to one background thread through a bounded queue; tensor values are written by the thread
that hands them over (values.py). Rows that may point into a shard wait until that shard is sealed,
which happens at the latest when the next flush is due. Nothing here raises into the watched program
because of the disk: the first error ends the recording with one warning, and every later call does
nothing.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import nanoarrow

from opscope.errors import RecordError
from opscope.run.arrow import encode_rows, table_schema
from opscope.run.contain import contain, ignore, is_the_programs, reason, tell
from opscope.run.schema import Process, Row, ValueRef
from opscope.run.store.layout import PROCESS_FILE, PROCESSES, claim_process, write_json
from opscope.run.store.segments import SegmentedTables
from opscope.run.store.tables import checked_batch
from opscope.run.store.values import WRITER, ValueStore

QUEUE_BYTES = 16 << 20


class _Rows(msgspec.Struct, frozen=True):
    """Rows on their way to the disk; shard is the unsealed shard they may point into."""

    table: str
    batch: Any
    step: int
    nbytes: int
    shard: int | None


class _StepEnd(msgspec.Struct, frozen=True):
    """A step is over; its rows were queued before."""

    step: int
    finding: bool
    touched: frozenset[str]
    nbytes: int = 0
    shard: int | None = None


class ProcessWriter:
    """The writer of one process directory; safe to call from several threads.

    keep is the number of last steps that stay on disk (None: all). failed is why recording ended,
    or None; waited is the number of seconds that its callers waited for the disk. Making one never
    raises for the disk either.
    """

    def __init__(
        self,
        run_directory: str | os.PathLike[str],
        facts: Process,
        *,
        keep: int | None = 100,
        flush_seconds: float = 1.0,
        queue_bytes: int = QUEUE_BYTES,
    ) -> None:
        self.failed: RecordError | None = None
        self.waited = 0.0
        self.idle: Callable[[], None] = lambda: (
            None
        )  # asked by the writing thread at every flush, for rows that wait elsewhere
        self.process = facts
        self._ended = False
        self._closing = False
        self._flush_seconds = flush_seconds
        self._queue_bytes = queue_bytes
        self._makers: set[tuple[str, type]] = (
            set()
        )  # whose batches were checked: one of a kind tells for all
        self._jobs: deque[_Rows | _StepEnd] = deque()
        self._queued = 0
        self._share()
        # tickets of flush(): how many were asked for, and up to which all is done
        self._flush_wanted = 0
        self._flush_done = 0
        self.directory = Path(run_directory)
        contain(self._fail, self._claim, facts, keep)

    def _share(self) -> None:
        """Make the lock of both threads and the condition for what it guards.

        The lock is entered itself: a condition's own ways in and out are Python, in which a signal
        handler of the program may raise and leave it locked.
        """
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._telling = threading.RLock()  # of process.json: steps of two threads may end together

    def _claim(self, facts: Process, keep: int | None) -> None:
        self.process = claim_process(self.directory, facts)
        self.directory = directory = self.directory / PROCESSES / self.process.directory
        self._values = ValueStore(directory)
        self._tables = SegmentedTables(directory, self.process, self._values, keep=keep)
        self._thread = threading.Thread(target=self._run, name=WRITER, daemon=True)
        self._thread.start()

    def append(self, table: str, batch: Any, *, step: int) -> None:
        """Queue rows of a table: a struct array in schema column order, by anything with
        __arrow_c_array__.

        Waits while the queue is full. RecordError when the batch has other columns: that is a bug
        of the caller.
        """
        if self._ended:
            return
        maker = (table, type(batch))
        array = (
            nanoarrow.c_array(batch)
            if maker in self._makers
            else checked_batch(table, batch, table_schema(table))
        )
        self._makers.add(maker)
        nbytes = array.length * self._tables.row_bytes(table)
        self._put(_Rows(table, array, step, nbytes, self._values.unsealed()))

    def append_rows(self, rows: Mapping[str, Sequence[Row]], *, step: int) -> None:
        """Queue rows of several tables, in this order."""
        for table, some in rows.items():
            if some:
                self.append(table, encode_rows(table, some), step=step)

    def keep_value(
        self, data: Any, *, dtype: str, shape: Sequence[int], seal: bool = False
    ) -> ValueRef | None:
        """Store the bytes of a C-contiguous buffer once; it may change after return. None when
        recording has ended.

        dtype and shape describe the bytes, for whoever opens the shard without the tables. None too
        when a signal handler of the program asks for it in the middle of another call, and when
        there is no memory for it, which `unkept` of process.json counts. With seal
        the value is on disk under its final name on return. A ref may be used again in later rows
        as long as holds(ref).
        """
        if self._ended:
            return None
        return contain(self._fail, self._keep, _bytes_of(data), dtype, shape, seal)

    def _keep(
        self,
        data: memoryview,
        dtype: str,
        shape: Sequence[int],
        seal: bool,  # noqa: FBT001 - by contain
    ) -> ValueRef | None:
        try:
            ref = self._values.keep(data, dtype=dtype, shape=shape)
        except MemoryError as error:
            if is_the_programs(error):
                raise
            self._lose(data)
            return None
        if seal:
            self._values.seal()
        return ref

    def _lose(self, data: memoryview) -> None:
        """Count a value that there is no memory for, and say so of the first."""
        if not self.process.unkept:
            tell(
                f"{self.directory}: no memory for a value of {len(data):,} bytes; "
                "such values are not kept, the recording goes on"
            )
        self.process = msgspec.structs.replace(self.process, unkept=self.process.unkept + 1)

    def holds(self, ref: ValueRef) -> bool:
        """Whether rows may still point to this value: its shard has not been deleted with old
        steps.
        """
        return not self._ended and self._values.holds(ref)

    def end_step(self, step: int, *, finding: bool = False) -> None:
        """Say that the rows of a step are all appended; a step with a finding is kept whatever its
        age.
        """
        self.end_steps([(step, finding)])

    def end_steps(self, steps: Sequence[tuple[int, bool]]) -> None:
        """The same of several steps, each with whether it has a finding."""
        if steps and not self._ended:
            touched = frozenset(self._values.take_touched())
            self._put(*(_StepEnd(step, finding, touched) for step, finding in steps))

    def flush(self) -> None:
        """Return when everything appended so far is in the files (or recording has ended)."""
        with self._lock:
            self._flush_wanted += 1
            ticket = self._flush_wanted
            self._changed.notify_all()
            while not self._ended and self._flush_done < ticket and self._thread.is_alive():
                self._changed.wait(0.5)

    def update(self, **facts: Any) -> None:
        """Replace facts of process.json that became known late, such as rank."""
        with self._telling:
            self.process = msgspec.structs.replace(self.process, **facts)
            if self._ended:
                return
            with self._waiting():
                contain(self._fail, write_json, self.directory / PROCESS_FILE, self.process)

    def close(self, exit_code: int | None = None) -> None:
        """Flush, end every file and write the exit code into process.json; the second call does
        nothing.
        """
        if self._ended:
            self._wait_for_the_warning()
            self._note_failure()  # again: there may be room by now
            return
        with self._waiting():
            self.flush()
            with self._lock:
                self._closing = True
                self._changed.notify_all()
            self._thread.join()
        if self._close_values():
            self.waited += self._values.waited
            self.update(exit_code=exit_code, waited=self.waited, rows=self._tables.rows())
        self._ended = True

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """The program waits for the disk."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.waited += time.perf_counter() - begun

    def _wait_for_the_warning(self) -> None:
        """The writing thread ends recording first and says so next; the process must not be gone in
        between.
        """
        thread: threading.Thread | None = getattr(self, "_thread", None)
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _close_values(self) -> bool:
        contain(self._fail, self._values.close)
        return self.failed is None

    def drop_after_fork(self) -> None:
        """In a forked child: become a writer that does nothing, and leave the parent's files
        alone.
        """
        already = self._ended
        self._ended = True
        self._share()
        self._jobs = deque()
        if not already:
            self._values.drop_after_fork()
            self._tables.abandon()

    def _put(self, *jobs: _Rows | _StepEnd) -> None:
        nbytes = sum(job.nbytes for job in jobs)
        own = threading.get_ident() == self._thread.ident  # which would wait for itself
        with self._lock:
            with self._waiting():
                while (
                    self._queued
                    and self._queued + nbytes > self._queue_bytes
                    and not self._ended
                    and not own
                ):
                    self._flush_wanted += 1
                    self._changed.notify_all()
                    self._changed.wait(0.5)
            self._jobs.extend(jobs)
            self._queued += nbytes
            self._changed.notify_all()

    def _run(self) -> None:
        flushed = time.monotonic()
        try:
            while not self._ended and not (
                self._closing and self._flush_done == self._flush_wanted
            ):
                ticket, due = self._wait(flushed + self._flush_seconds)
                if due:
                    self.idle()
                    self._values.seal()
                    flushed = time.monotonic()
                self._drain()
                if due:
                    self._tables.tidy()
                with self._lock:
                    self._flush_done = max(ticket, self._flush_done)
                    self._changed.notify_all()
            if not self._ended:
                self._tables.close()
        except BaseException as error:  # noqa: BLE001 - the recording boundary: nothing may reach the watched program
            self._fail(error)
        finally:
            self._tables.abandon()

    def _wait(self, deadline: float) -> tuple[int, bool]:
        """Wait for something to do; the flush ticket that the coming round fulfils, and whether to
        seal the shard.
        """
        with self._lock:
            asked = self._flush_wanted > self._flush_done
            if not (asked or self._closing or self._ready()):
                self._changed.wait(max(deadline - time.monotonic(), 0.001))
            asked = self._flush_wanted > self._flush_done
            due = asked or time.monotonic() >= deadline
            return (self._flush_wanted if asked else self._flush_done), due

    def _ready(self) -> bool:
        """Whether the oldest job can be done; call with the lock held."""
        if not self._jobs:
            return False
        shard = self._jobs[0].shard
        return shard is None or shard < self._values.next_number()

    def _drain(self) -> None:
        while True:
            with self._lock:
                if self._ended or not self._ready():
                    return
                job = self._jobs.popleft()
            if isinstance(job, _Rows):
                self._tables.write(job.table, job.batch, step=job.step)
            else:
                self._tables.end_step(job.step, finding=job.finding, touched=job.touched)
            with self._lock:
                self._queued -= job.nbytes
                self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        """End the recording with one warning."""
        with self._lock:
            if self.failed is not None or self._ended:
                return
            said = self.process.failed is not None
            where, why = self._told(error)
            self.failed = RecordError(f"{where}: {why}; recording ended, the program goes on")
            self._ended = True
            self._jobs.clear()
            self._queued = 0
            self._changed.notify_all()
        if hasattr(self, "_values"):
            contain(ignore, self._values.discard)
        self.process = msgspec.structs.replace(self.process, failed=self.process.failed or why)
        self._note_failure()
        if not said:
            tell(str(self.failed))

    def _told(self, error: BaseException) -> tuple[object, str]:
        """The file that failed and what is wrong with it; that the run is gone, where that is
        so.
        """
        if is_the_programs(error):
            return self.directory, reason(error)
        with suppress(OSError):
            if not self.directory.exists():
                return self.directory, "removed or replaced while the program ran"
        where = getattr(error, "filename", None) or self.directory
        return where, getattr(error, "strerror", None) or str(error) or type(error).__name__

    def _note_failure(self) -> None:
        """Have process.json say why recording ended, where the disk still takes that."""
        if self.process.failed is not None and hasattr(self, "_values"):
            with self._telling:
                contain(ignore, write_json, self.directory / PROCESS_FILE, self.process)


def _bytes_of(data: Any) -> memoryview:
    view = memoryview(data)
    return view.cast("B") if view.nbytes else memoryview(b"")
