# SPDX-License-Identifier: Apache-2.0
"""The black box: a preallocated, memory-mapped ring that names the calls in flight after kill -9 or abort.

Every call is written into the ring when it is entered and stands on the stack of its thread until it is left. The pages
belong to the file, so what was written survives the process. All numbers are little-endian.

Header, at 0:
    0   8 bytes  "OPSCOPBB"
    8   uint32   version, 1
    12  uint32   bytes of the header, 4096
    16  uint32   bytes of a slot, 512
    20  uint32   slots of the ring, 1024
    24  uint32   stacks (threads), 64
    28  uint32   slots of a stack, 64
    32  uint64   process id
    40  uint64   calls entered so far; the n-th call (from 0) is in ring slot n % slots
    48  uint64   calls entered while no stack was free
The ring, at 4096: its slots, one after the other.
The stacks behind it, each 64 bytes + its slots:
    0   uint64   thread id, 0 when the stack is free
    8   uint32   calls open; those beyond the slots of a stack are counted but have no slot
    12  52 bytes zero
    64  slots, outermost call first
A slot:
    0   uint64   n + 1; 0 while the slot is empty or being written, so it is zeroed first and set last
    8   int64    index of the call
    16  uint64   thread id
    24  int64    index of the enclosing call, -1 for none
    32  int32    step
    36  uint8    level, position in schema.LEVELS
    37  uint8    phase, position in schema.PHASES
    38  uint8    1 when the call was left (ring only)
    39  uint8    zero
    40  uint16   bytes of the text
    42  6 bytes  zero
    48  text     UTF-8: op, name, module, source, with 0x1f between them; cut at 464 bytes

To enter a call: take n (atomically add 1 to the count), write the ring slot, write the same slot at the top of the
thread's stack, then add 1 to its open calls. To leave: set the open calls back to the call's place, and byte 38 of the
ring slot to 1 if the slot still holds n + 1.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec

from opscope.errors import FormatError
from opscope.run.schema import LEVELS, PHASES
from opscope.run.store.layout import file_mode
from opscope.run.store.spool import allocate

MAGIC = b"OPSCOPBB"
VERSION = 1
HEADER_BYTES = 4096
SLOT_BYTES = 512
RING_SLOTS = 1024
STACKS = 64
STACK_SLOTS = 64
STACK_HEADER = 64
TEXT_AT = 48
TEXT_BYTES = SLOT_BYTES - TEXT_AT
ENTERED_AT = 40
UNTRACKED_AT = 48
LEFT_AT = 38
SEPARATOR = "\x1f"

_HEADER = struct.Struct("<8s6IQQQ")
_SLOT = struct.Struct("<QqQqiBBBxH6x")
_STACK = struct.Struct("<QI")
_MAX_FILE = 1 << 30


class Facts(msgspec.Struct, frozen=True):
    """What is known of a call besides its index and text when it is entered."""

    step: int = 0
    parent: int | None = None
    level: str = "operator"
    phase: str = "forward"


class BlackBoxCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call as the black box has it; left is whether it was left before the end."""

    index: int
    thread: int
    parent: int | None
    step: int
    level: str
    phase: str
    op: str
    name: str
    module: str | None
    source: str | None
    left: bool


class BlackBoxContents(msgspec.Struct, frozen=True, kw_only=True):
    """What a black box holds: the recent calls, oldest first, and the open ones of each thread, outermost first."""

    pid: int
    entered: int
    recent: tuple[BlackBoxCall, ...]
    open: tuple[BlackBoxCall, ...]


class BlackBox:
    """The writing side; buffer is the whole mapped file, for a recorder that writes the layout itself."""

    def __init__(self, buffer: mmap.mmap) -> None:
        self.buffer = buffer
        self._lock = threading.RLock()  # a signal handler of the program may enter calls too
        self._stacks: dict[int, tuple[int, list[tuple[int, int]]]] = {}  # thread -> number, open (index, n)

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> BlackBox:
        """Make and map the file; OSError (a full disk included) comes here and never later."""
        size = HEADER_BYTES + RING_SLOTS * SLOT_BYTES + STACKS * (STACK_HEADER + STACK_SLOTS * SLOT_BYTES)
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, file_mode(Path(path).parent))
        try:
            allocate(file, 0, size)
            os.ftruncate(file, size)
            buffer = mmap.mmap(file, size)
        except OSError as error:
            Path(path).unlink()
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        finally:
            os.close(file)
        sizes = (VERSION, HEADER_BYTES, SLOT_BYTES, RING_SLOTS, STACKS, STACK_SLOTS)
        _HEADER.pack_into(buffer, 0, MAGIC, *sizes, os.getpid(), 0, 0)
        return cls(buffer)

    def enter(self, index: int, thread: int, text: str, facts: Facts | None = None) -> None:
        """Note that a call begins; text is blackbox_text(...)."""
        facts = Facts() if facts is None else facts
        with self._lock:
            n = struct.unpack_from("<Q", self.buffer, ENTERED_AT)[0]
            struct.pack_into("<Q", self.buffer, ENTERED_AT, n + 1)
            data = text.encode("utf-8", "backslashreplace")[:TEXT_BYTES]
            parent = -1 if facts.parent is None else facts.parent
            words = (index, thread, parent, facts.step, LEVELS.index(facts.level), PHASES.index(facts.phase), 0, len(data))
            self._write(HEADER_BYTES + n % RING_SLOTS * SLOT_BYTES, n, words, data)
            stack = self._stack(thread)
            if stack is None:
                return
            number, opened = stack
            if len(opened) < STACK_SLOTS:
                self._write(_stack_at(number) + STACK_HEADER + len(opened) * SLOT_BYTES, n, words, data)
            opened.append((index, n))
            _STACK.pack_into(self.buffer, _stack_at(number), thread, len(opened))

    def leave(self, index: int, thread: int) -> None:
        """Note that a call ended, and with it whatever is still open inside it."""
        with self._lock:
            number, opened = self._stacks.get(thread, (0, []))
            place = next((i for i in range(len(opened) - 1, -1, -1) if opened[i][0] == index), None)
            if place is None:
                return
            for _, n in opened[place:]:
                at = HEADER_BYTES + n % RING_SLOTS * SLOT_BYTES
                if struct.unpack_from("<Q", self.buffer, at)[0] == n + 1:
                    self.buffer[at + LEFT_AT] = 1
            del opened[place:]
            _STACK.pack_into(self.buffer, _stack_at(number), thread, len(opened))

    def _stack(self, thread: int) -> tuple[int, list[tuple[int, int]]] | None:
        """The stack of a thread, an idle one taken over when it has none yet; None when all are busy."""
        if thread in self._stacks:
            return self._stacks[thread]
        taken = {number for number, _ in self._stacks.values()}
        number = next((free for free in range(STACKS) if free not in taken), None)
        if number is None:
            idle = next((owner for owner, (_, opened) in self._stacks.items() if not opened), None)
            if idle is None:
                untracked = struct.unpack_from("<Q", self.buffer, UNTRACKED_AT)[0]
                struct.pack_into("<Q", self.buffer, UNTRACKED_AT, untracked + 1)
                return None
            number = self._stacks.pop(idle)[0]
        return self._stacks.setdefault(thread, (number, []))

    def _write(self, at: int, n: int, words: tuple[int, ...], data: bytes) -> None:
        _SLOT.pack_into(self.buffer, at, 0, *words)
        self.buffer[at + TEXT_AT : at + TEXT_AT + len(data)] = data
        struct.pack_into("<Q", self.buffer, at, n + 1)

    def close(self) -> None:
        """Unmap; the file stays."""
        self.buffer.close()


def blackbox_text(op: str, name: str, module: str | None = None, source: str | None = None) -> str:
    """The text of a slot."""
    return SEPARATOR.join((op, name, module or "", source or ""))


def read_blackbox(path: str | os.PathLike[str]) -> BlackBoxContents:
    """Read a black box, of a dead process or a live one; FormatError when the file is not one or is cut short."""
    try:
        size = Path(path).stat().st_size
        data = Path(path).read_bytes() if size <= _MAX_FILE else b""
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror}") from error
    if len(data) < HEADER_BYTES or data[:8] != MAGIC:
        raise FormatError(path, "not a black box of opscope", offset=0)
    _, version, header, slot, ring, stacks, depth, pid, entered, _ = _HEADER.unpack_from(data, 0)
    if version != VERSION or (header, slot) != (HEADER_BYTES, SLOT_BYTES):
        raise FormatError(path, f"black box of version {version}; this opscope reads {VERSION}", offset=8)
    if header + slot * ring + stacks * (STACK_HEADER + depth * slot) > len(data):
        raise FormatError(path, "torn black box", offset=len(data))
    recent = sorted(_slots(data, header, ring), key=lambda found: found[0])
    opened = [call for number in range(stacks) for call in _open_calls(data, header + ring * slot, number, depth)]
    return BlackBoxContents(pid=pid, entered=entered, recent=tuple(call for _, call in recent), open=tuple(opened))


def _open_calls(data: bytes, start: int, number: int, depth: int) -> Iterator[BlackBoxCall]:
    at = start + number * (STACK_HEADER + depth * SLOT_BYTES)
    thread, opened = _STACK.unpack_from(data, at)
    if thread:
        yield from (call for _, call in _slots(data, at + STACK_HEADER, min(opened, depth)))


def _slots(data: bytes, start: int, count: int) -> Iterator[tuple[int, BlackBoxCall]]:
    for at in range(start, start + count * SLOT_BYTES, SLOT_BYTES):
        n, index, thread, parent, step, level, phase, left, length = _SLOT.unpack_from(data, at)
        if n == 0 or level >= len(LEVELS) or phase >= len(PHASES):
            continue
        text = data[at + TEXT_AT : at + TEXT_AT + min(length, TEXT_BYTES)].decode("utf-8", "replace")
        op, name, module, source = (*text.split(SEPARATOR, 3), "", "", "", "")[:4]
        call = BlackBoxCall(
            index=index,
            thread=thread,
            parent=None if parent < 0 else parent,
            step=step,
            level=LEVELS[level],
            phase=PHASES[phase],
            op=op,
            name=name,
            module=module or None,
            source=source or None,
            left=bool(left),
        )
        yield n, call


def _stack_at(number: int) -> int:
    return HEADER_BYTES + RING_SLOTS * SLOT_BYTES + number * (STACK_HEADER + STACK_SLOTS * SLOT_BYTES)
