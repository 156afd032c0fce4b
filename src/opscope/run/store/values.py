# SPDX-License-Identifier: Apache-2.0
"""The writing side of a process's tensor values: content-addressed, in shards, safe for several
threads.

Values are hashed and copied into buffers on the thread that hands them over, and written by one
thread of their own (spool.py). Measured for 650 MB: hashing 0.05 to 0.08 s, copying 0.06 s, both
without the GIL.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import xxhash

from opscope.run.schema import ValueRef
from opscope.run.store.shards import OpenShard, ShardFile
from opscope.run.store.spool import Spool

WRITER = "opscope-writer"  # the thread for which nobody waits
MAX_KEYS = (
    1 << 18
)  # values remembered for deduplication; older ones are stored again when they come back


class ValueStore:
    """Tensor values of one process; keep() and seal() may raise OSError, after which discard() is
    called.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.RLock()
        self._shard = OpenShard(0)
        self._spool = Spool()
        self._file = ShardFile(directory, self._shard.name, self._spool)
        self._where: dict[str, str] = {}  # key -> shard name, oldest first
        self._deleted: set[str] = set()
        self._touched: set[str] = set()
        self._discarded = False
        self._waited = 0.0

    def keep(self, data: memoryview, *, dtype: str, shape: Sequence[int]) -> ValueRef | None:
        """Store these bytes unless they are there already; they may change after return.
        MemoryError when there is no room for them: nothing has changed then.

        None after discard(), and inside a signal handler that interrupted another call on this
        thread.
        """
        key = xxhash.xxh3_128_hexdigest(data)
        inner = _entered(self._lock)
        with self._lock:
            if self._discarded or inner:
                return None
            known = self._where.get(key)
            if known is None:
                known = self._add(key, data, dtype=dtype, shape=shape)
            self._touched.add(known)
            return ValueRef(known, key)

    def _add(self, key: str, data: memoryview, *, dtype: str, shape: Sequence[int]) -> str:
        self._file.make_room()
        try:
            return self._append(key, data, dtype=dtype, shape=shape)
        except MemoryError as error:  # half of it may be written: no value can follow
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)) from error

    def _append(self, key: str, data: memoryview, *, dtype: str, shape: Sequence[int]) -> str:
        if not self._shard.add(key, len(data), dtype, shape):
            self._wait_for_seal()
            self._shard.add(key, len(data), dtype, shape)
        self._file.append(data)
        if len(self._where) >= MAX_KEYS:
            del self._where[next(iter(self._where))]
        self._where[key] = self._shard.name
        return self._shard.name

    def unsealed(self) -> int | None:
        """Number of the shard that rows appended now may point into and that is not sealed; None
        when there is none.
        """
        shard = self._shard
        return shard.number if shard.entries else None

    def next_number(self) -> int:
        """Every shard below this number is sealed."""
        return self._shard.number

    def seal(self) -> None:
        """Seal the open shard, if it holds anything."""
        inner = _entered(self._lock)
        with self._lock:
            if not inner:
                self._wait_for_seal()

    def _wait_for_seal(self) -> None:
        begun = time.perf_counter()
        try:
            self._seal()
        finally:
            if threading.current_thread().name != WRITER:
                self._waited += time.perf_counter() - begun

    def _seal(self) -> None:
        if not self._shard.entries or self._discarded:
            return
        self._file.seal(self._shard)
        self._shard = OpenShard(self._shard.number + 1)
        self._file = ShardFile(self._directory, self._shard.name, self._spool)

    def holds(self, ref: ValueRef) -> bool:
        """Whether the shard of this value has not been deleted."""
        return ref.shard not in self._deleted

    def take_touched(self) -> set[str]:
        """Shards that values were stored in or found in since the last call."""
        inner = _entered(self._lock)
        with self._lock:
            if inner:
                return set()
            touched, self._touched = self._touched, set()
            return touched

    def delete(self, shards: Iterable[str]) -> None:
        """Remove sealed shards; their values are stored anew when they come back."""
        with self._lock:
            gone = set(shards) - self._touched - {self._shard.name}
            self._where = {key: shard for key, shard in self._where.items() if shard not in gone}
            self._deleted |= gone
        for shard in gone:
            (self._directory / shard).unlink(missing_ok=True)

    def discard(self) -> None:
        """Give up the open shard after an error."""
        with self._lock:
            self._discarded = True
            self._file.discard()
        self._spool.close()

    def close(self) -> None:
        """Seal the open shard and end the spool."""
        self.seal()
        self._spool.close()

    @property
    def waited(self) -> float:
        """Seconds that the program waited for the disk."""
        return self._spool.waited + self._waited

    def drop_after_fork(self) -> None:
        """In a forked child: let go of the file without touching what it holds."""
        self._lock = threading.RLock()
        self._discarded = True
        self._spool = self._file.drop_after_fork()


def _entered(lock: threading.RLock) -> bool:
    """Whether this thread is inside of a lock already, as a signal handler may be: it steps back.

    Locks are entered themselves: a way in or out that is written in Python may be left by what a
    signal handler raises, and leave the lock locked.
    """
    return lock._is_owned()  # type: ignore[attr-defined,no-any-return] # as threading.Condition asks
