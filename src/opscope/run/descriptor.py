# SPDX-License-Identifier: Apache-2.0
"""File descriptors that stay ours: programs close descriptors they did not open (daemons do), and
get the same numbers again.

A descriptor is moved out of the way of such code, and compared with the file it was made for before
every use.
"""

from __future__ import annotations

import errno
import os

try:
    import fcntl
    import resource
except ImportError:  # Windows
    MOVABLE = False
else:
    MOVABLE = True

OUT_OF_THE_WAY = 512  # a program's own files, and what it closes by counting, have lower numbers


class LostFileError(OSError):
    """A file of ours is gone, or its descriptor is; nothing was written."""


class Descriptor:
    """An open file, pipe or memory; every method raises LostFileError once its number means
    something else.
    """

    def __init__(self, number: int, name: str) -> None:
        self.name = name
        self._number = lifted(number)
        self.device, self.inode = identity(os.fstat(self._number))

    def number(self) -> int:
        """The number to hand to the system, at once."""
        self.stat()
        return self._number

    def stat(self) -> os.stat_result:
        """What the system says of the file."""
        try:
            status = os.fstat(self._number)
        except OSError as error:
            if error.errno is None:  # nothing of the system's: a signal handler raised it
                raise
            raise LostFileError(
                errno.EBADF, "the program closed its descriptor", self.name
            ) from error
        if identity(status) != (self.device, self.inode):
            raise LostFileError(
                errno.EBADF,
                "the program closed its descriptor and has the number for a file of its own",
                self.name,
            )
        return status

    def close(self) -> None:
        """Close it, if it is still ours; a second call does nothing."""
        try:
            number, self._number = self.number(), -1
        except LostFileError:
            return
        os.close(number)


def identity(status: os.stat_result) -> tuple[int, int]:
    """What no other file has."""
    return status.st_dev, status.st_ino


def lifted(number: int) -> int:
    """The same file under a high number, closed on exec; under the given one where there is no room
    for that, or the system cannot.
    """
    if not MOVABLE:
        return number
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    lowest = OUT_OF_THE_WAY if limit == resource.RLIM_INFINITY else min(OUT_OF_THE_WAY, limit // 2)
    try:
        high = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, lowest)
    except OSError as error:
        if error.errno is None:  # nothing of the system's: a signal handler raised it
            raise
        return number
    os.close(number)
    return high
