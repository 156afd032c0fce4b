# SPDX-License-Identifier: Apache-2.0
"""The black box: a ring that names the calls in flight after kill -9 or abort.

Every call is written into a slot of the ring when it is entered, and marked when it is left; a slot
whose call is still open is passed over. Each of the two is one write into the file: a file that is
mapped into memory instead would cost less, but whoever cut it short would end the program with
SIGBUS. All numbers are little-endian.

Header, at 0:
    0   8 bytes  "OPSCOPBB"
    8   uint32   version, 2
    12  uint32   bytes of the header, 4096
    16  uint32   bytes of a slot, 512
    20  uint32   slots of the ring, 1024
    24  uint32   1 when it was given up, since the disk was too slow for it; what is open is not
                 known then
    28  4 bytes  zero
    32  uint64   process id
The ring, at 4096: its slots, one after the other. The n-th call (from 0) is in slot n % slots, and
numbers whose slot is taken are left out. A slot:
    0   uint64   n + 1; 0 while the slot is empty
    8   int64    index of the call
    16  uint64   thread id
    24  int64    index of the enclosing call, -1 for none
    32  int32    step
    36  uint8    level, position in schema.LEVELS
    37  uint8    phase, position in schema.PHASES
    38  uint8    1 when the call was left
    39  uint8    zero
    40  uint16   bytes of the text
    42  6 bytes  zero
    48  text     UTF-8: op, name, module, source, with 0x1f between them; cut at 464 bytes

A call that is entered while every slot holds an open one is not written.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from opscope.errors import FormatError
from opscope.run.schema import LEVELS, PHASES
from opscope.run.store.held_file import HeldFile

MAGIC = b"OPSCOPBB"
VERSION = 2
HEADER_BYTES = 4096
SLOT_BYTES = 512
RING_SLOTS = 1024
FILE_BYTES = HEADER_BYTES + RING_SLOTS * SLOT_BYTES
TEXT_AT = 48
TEXT_BYTES = SLOT_BYTES - TEXT_AT
LEFT_AT = 38
GIVEN_UP_AT = 24
SHARE, LEAST_SECONDS = 0.05, 0.5
SEPARATOR = "\x1f"

_HEADER = struct.Struct("<8s5I4xQ")
_SLOT = struct.Struct("<QqQqiBBBxH6x")
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
    """What a black box holds: the recent calls in the order they were entered, and those of them
    that are open.
    """

    pid: int
    recent: tuple[BlackBoxCall, ...]
    open: tuple[BlackBoxCall, ...]


class BlackBox:
    """The writing side; every method may raise OSError, LostFileError once the file or its
    descriptor has been taken away.
    """

    def __init__(self, file: HeldFile) -> None:
        self._file = file
        self._lock = threading.RLock()  # a signal handler of the program may enter calls too
        self._next = 0
        self._since, self._spent, self._given_up = time.monotonic(), 0.0, False
        self._taken: set[int] = set()
        self._open: dict[int, list[tuple[int, int]]] = {}  # thread -> (index, n)

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> BlackBox:
        """Make the file and take all its room; a full disk shows here."""
        file = HeldFile(Path(path), fresh=True)
        try:
            file.allocate(0, FILE_BYTES)
            file.truncate(FILE_BYTES)
            file.write(
                memoryview(
                    _HEADER.pack(
                        MAGIC, VERSION, HEADER_BYTES, SLOT_BYTES, RING_SLOTS, 0, os.getpid()
                    )
                ),
                0,
            )
        except OSError as error:
            file.close()
            Path(path).unlink(missing_ok=True)
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        return cls(file)

    @property
    def place(self) -> tuple[str, int, int, int]:
        """Path, descriptor, device and inode, for a recorder that writes the layout itself."""
        descriptor = self._file.descriptor
        return os.fspath(self._file.path), descriptor.number(), descriptor.device, descriptor.inode

    def enter(self, index: int, thread: int, text: str, facts: Facts | None = None) -> None:
        """Note that a call begins; text is blackbox_text(...)."""
        facts = Facts() if facts is None else facts
        with self._lock:
            if self._given_up or len(self._taken) == RING_SLOTS:
                return
            while self._next % RING_SLOTS in self._taken:
                self._next += 1
            n, self._next = self._next, self._next + 1
            data = text.encode("utf-8", "backslashreplace")[:TEXT_BYTES]
            parent = -1 if facts.parent is None else facts.parent
            words = (
                index,
                thread,
                parent,
                facts.step,
                LEVELS.index(facts.level),
                PHASES.index(facts.phase),
                0,
                len(data),
            )
            self._taken.add(n % RING_SLOTS)
            self._open.setdefault(thread, []).append((index, n))
            self._write(_SLOT.pack(n + 1, *words) + data, _slot_at(n))

    def leave(self, index: int, thread: int) -> None:
        """Note that a call ended, and with it whatever is still open inside it."""
        with self._lock:
            opened = self._open.get(thread, [])
            depth = next(
                (i for i in range(len(opened) - 1, -1, -1) if opened[i][0] == index), len(opened)
            )
            while len(opened) > depth:
                n = opened.pop()[1]
                self._taken.discard(n % RING_SLOTS)
                self._write(b"\x01", _slot_at(n) + LEFT_AT)

    def _write(self, data: bytes, at: int) -> None:
        """Write it, unless the disk is so slow that the program would spend more than SHARE of its
        time waiting for it.
        """
        if self._given_up:
            return
        begun = time.monotonic()
        self._file.write(memoryview(data), at)
        now = time.monotonic()
        self._spent += now - begun
        if self._spent > LEAST_SECONDS and self._spent > SHARE * (now - self._since):
            self._file.write(memoryview(struct.pack("<I", 1)), GIVEN_UP_AT)
            self._given_up = True

    def close(self) -> None:
        """Close the file, which stays."""
        self._file.close()


def blackbox_text(op: str, name: str, module: str | None = None, source: str | None = None) -> str:
    """The text of a slot."""
    return SEPARATOR.join((op, name, module or "", source or ""))


def read_blackbox(path: str | os.PathLike[str]) -> BlackBoxContents:
    """Read a black box, of a dead process or a live one; FormatError when the file is not one or is
    cut short.
    """
    try:
        size = Path(path).stat().st_size
        data = Path(path).read_bytes() if size <= _MAX_FILE else b""
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror}") from error
    if len(data) < HEADER_BYTES or data[:8] != MAGIC:
        raise FormatError(path, "not a black box of opscope", offset=0)
    _, version, header, slot, ring, given_up, pid = _HEADER.unpack_from(data, 0)
    if version != VERSION or (header, slot) != (HEADER_BYTES, SLOT_BYTES):
        raise FormatError(
            path, f"black box of version {version}; this opscope reads {VERSION}", offset=8
        )
    if header + slot * ring > len(data):
        raise FormatError(path, "torn black box", offset=len(data))
    recent = tuple(
        call
        for _, call in sorted(
            _slots(data, header, ring), key=lambda slot_and_call: slot_and_call[0]
        )
    )
    return BlackBoxContents(
        pid=pid,
        recent=recent,
        open=() if given_up else tuple(call for call in recent if not call.left),
    )


def _slots(data: bytes, start: int, count: int) -> Iterator[tuple[int, BlackBoxCall]]:
    for at in range(start, start + count * SLOT_BYTES, SLOT_BYTES):
        n, index, thread, parent, step, level, phase, left, length = _SLOT.unpack_from(data, at)
        if n == 0 or level >= len(LEVELS) or phase >= len(PHASES):
            continue
        text = data[at + TEXT_AT : at + TEXT_AT + min(length, TEXT_BYTES)].decode(
            "utf-8", "replace"
        )
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


def _slot_at(n: int) -> int:
    return HEADER_BYTES + n % RING_SLOTS * SLOT_BYTES
