# SPDX-License-Identifier: Apache-2.0
"""A file of a run that is being written: looked at before every write, since programs and other
processes may take it away.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from opscope.run.descriptor import Descriptor, LostFileError, identity
from opscope.run.store.layout import file_mode

O_DIRECT: int = getattr(os, "O_DIRECT", 0)
O_BINARY: int = getattr(os, "O_BINARY", 0)  # Windows writes texts unless it is told not to


class HeldFile:
    """A new file; methods raise OSError, LostFileError once its descriptor or its name stands for
    something else.

    direct: it is written past the page cache, if that was wanted and is possible. fresh: no file of
    this name may be there.
    """

    def __init__(self, path: Path, *, direct: bool = False, fresh: bool = False) -> None:
        self.path = path
        number, self.direct = open_for_writing(path, direct=direct, fresh=fresh)
        self.descriptor = Descriptor(number, os.fspath(path))

    def stat(self) -> os.stat_result:
        """What the system says of the file."""
        held = self.descriptor.stat()
        lost = LostFileError(
            errno.ENOENT, "removed or replaced while it was being written", os.fspath(self.path)
        )
        try:
            named = identity(self.path.stat())
        except OSError as error:  # what a signal handler raised may be one: it is not to vanish
            raise lost from error
        if named != identity(held):
            raise lost
        return held

    def write(self, data: memoryview, offset: int) -> None:
        """Write all of it there; a file that turns out not to do O_DIRECT is written through the
        page cache.
        """
        number = self._number()
        done = 0
        while done < len(data):
            done += _write_some(number, data[done:], offset + done)

    def allocate(self, offset: int, length: int) -> None:
        """Take the room, so that a full disk shows now."""
        allocate(self._number(), offset, length)

    def truncate(self, size: int) -> None:
        """Cut it to its size."""
        os.ftruncate(self._number(), size)

    def leave_direct(self) -> None:
        """Write through the page cache from now on."""
        leave_direct(self._number())

    def close(self) -> None:
        """Close it; a second call does nothing."""
        self.descriptor.close()

    def _number(self) -> int:
        self.stat()
        return self.descriptor.number()


def open_for_writing(path: os.PathLike[str], *, direct: bool, fresh: bool) -> tuple[int, bool]:
    """A new file, past the page cache if wanted and possible; the descriptor, and whether it is."""
    flags = os.O_CREAT | (os.O_EXCL if fresh else os.O_TRUNC) | os.O_RDWR | O_BINARY
    mode = file_mode(Path(path).parent)
    if direct and O_DIRECT:
        try:
            return os.open(path, flags | O_DIRECT, mode), True
        except OSError as error:
            if error.errno != errno.EINVAL:  # a file system without O_DIRECT
                raise
    return os.open(path, flags, mode), False


def _write_some(file: int, data: memoryview, offset: int) -> int:
    try:
        written = _write_at(file, data, offset)
    except OSError as error:
        if error.errno != errno.EINVAL or not leave_direct(file):
            raise
        written = _write_at(file, data, offset)
    if not written:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return written


def _write_at(file: int, data: memoryview, offset: int) -> int:
    if hasattr(os, "pwrite"):
        return os.pwrite(file, data, offset)
    os.lseek(file, offset, os.SEEK_SET)  # Windows; one thread writes to a file at a time
    return os.write(file, data)


def leave_direct(file: int) -> bool:
    """Write through the page cache from now on; False when the file did so already."""
    if not O_DIRECT:
        return False
    import fcntl

    flags = fcntl.fcntl(file, fcntl.F_GETFL)
    if not flags & O_DIRECT:
        return False
    fcntl.fcntl(file, fcntl.F_SETFL, flags & ~O_DIRECT)
    return True


def allocate(file: int, offset: int, length: int) -> None:
    """posix_fallocate; a system or a file system that cannot preallocate is left to fail, if it
    must, when it is written.
    """
    if not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(file, offset, length)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
