# SPDX-License-Identifier: Apache-2.0
"""Streaming the bytes of shards to disk: aligned buffers filled by the program's threads, written
by one thread.

A buffer is written past the page cache (O_DIRECT) where the file system can, since pages of a file
that nobody reads
soon only push out others: on the machine this was written on, 1 GB took 6 s through the page cache
and 1 to 2 s past it, while filling the buffers costs a tenth of a second. A slow disk below much
memory is the opposite, so the rate of both ways is watched, and the next shard takes the faster.

The number of buffers bounds memory; take() waits for one when the disk cannot keep up.
"""

from __future__ import annotations

import errno
import mmap
import threading
import time
from collections import deque

import msgspec

from opscope.run.contain import is_the_programs
from opscope.run.store.held_file import O_DIRECT, HeldFile

CHUNK_BYTES = 8 << 20
BUFFERS = 6
FAST_ENOUGH = 500e6  # bytes a second past the page cache at which the other way is not even tried


class _Job(msgspec.Struct, frozen=True):
    """Bytes of a buffer on their way to a place in a file."""

    file: HeldFile
    buffer: mmap.mmap
    length: int
    offset: int


def _memory() -> mmap.mmap:
    """CHUNK_BYTES that begin with a page, as writing past the page cache wants."""
    if hasattr(mmap, "MAP_ANONYMOUS"):  # not on Windows
        return mmap.mmap(-1, CHUNK_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return mmap.mmap(-1, CHUNK_BYTES)


class Spool:
    """The buffers and the thread; take(), write() and drain() raise the OSError that a write
    met.
    """

    def __init__(self) -> None:
        self.waited = 0.0
        self._lock = threading.RLock()  # entered itself: see ProcessWriter._share
        self._changed = threading.Condition(self._lock)
        self._free: list[mmap.mmap] = []
        self._made = 0
        self._jobs: deque[_Job] = deque()
        self._busy = False
        self._error: OSError | None = None
        self._thread: threading.Thread | None = None
        self._rates: dict[bool, float] = {}

    def prefer_direct(self) -> bool:
        """Whether the next file is better written past the page cache."""
        direct, cached = self._rates.get(True), self._rates.get(False)
        if not O_DIRECT:
            return False
        if direct is None or direct >= FAST_ENOUGH:
            return True
        return cached is not None and direct > cached

    def take(self) -> mmap.mmap:
        """An empty buffer of CHUNK_BYTES; MemoryError when there is room for none at all, else it
        waits for one.
        """
        with self._lock:
            self._raise()
            if not self._free and self._made < BUFFERS:
                made = self._make()
                if made is not None:
                    return made
            start = time.perf_counter()
            while not self._free:
                self._changed.wait(0.5)
                self._raise()
            self.waited += time.perf_counter() - start
            return self._free.pop()

    def _make(self) -> mmap.mmap | None:
        try:
            made = _memory()
        except OSError as error:
            if error.errno != errno.ENOMEM:
                raise
            if not self._made:
                raise MemoryError(error.strerror) from error
            return None  # those that are made come back once they are written
        self._made += 1
        return made

    def give_back(self, buffer: mmap.mmap) -> None:
        """Return a buffer that is not to be written."""
        with self._lock:
            self._free.append(buffer)
            self._changed.notify_all()

    def write(self, file: HeldFile, buffer: mmap.mmap, length: int, offset: int) -> None:
        """Write the first bytes of a buffer in the background; the buffer becomes free
        afterwards.
        """
        with self._lock:
            self._raise()
            if self._thread is None:
                self._thread = self._start()
            self._jobs.append(_Job(file, buffer, length, offset))
            self._changed.notify_all()
            if self._thread is None:
                self._finish(self._jobs.popleft())
                self._raise()

    def _start(self) -> threading.Thread | None:
        """The writing thread; None when the system has no room for one."""
        thread = threading.Thread(target=self._run, name="opscope-values", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if is_the_programs(error):
                raise
            return None
        return thread

    def drain(self) -> None:
        """Return when everything is written."""
        with self._lock:
            while (self._jobs or self._busy) and self._error is None:
                self._changed.wait(0.5)
            self._raise()

    def stop(self) -> None:
        """Give up what is not written yet and wait for what is being written; files may be closed
        afterwards.
        """
        with self._lock:
            self._jobs.clear()
            while self._busy:
                self._changed.wait(0.5)

    def close(self) -> None:
        """End the thread and let go of the buffers."""
        with self._lock:
            self._error = self._error or OSError(errno.EBADF, "closed")
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._free = []

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._jobs and self._error is None:
                    self._changed.wait()
                if self._error is not None:
                    return
                job = self._jobs.popleft()
                self._busy = True
            self._finish(job)

    def _finish(self, job: _Job) -> None:
        error = self._write(job)
        with self._lock:
            self._busy = False
            self._free.append(job.buffer)
            self._error = error
            self._changed.notify_all()

    def _write(self, job: _Job) -> OSError | None:
        start = time.perf_counter()
        try:
            with memoryview(job.buffer)[: job.length] as data:
                job.file.write(data, job.offset)
        except OSError as error:
            return error
        rate = job.length / max(time.perf_counter() - start, 1e-9)
        if job.length == CHUNK_BYTES:
            before = self._rates.get(job.file.direct, rate)
            self._rates[job.file.direct] = 0.7 * before + 0.3 * rate
        return None
