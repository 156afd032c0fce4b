# SPDX-License-Identifier: Apache-2.0
"""The one exception tree of opscope.

OpscopeError                 everything opscope raises on purpose
├── UsageError               a value the user gave cannot be used            (exit code 2)
├── FormatError              a file is not what it should be: path, offset   (exit code 2)
│   └── NewerFormatError     written by a newer opscope
├── MissingValueError        a tensor's values were not kept                 (exit code 2)
├── UnavailableError         a device, library or back end is missing here   (exit code 125)
└── RecordError              recording ended; the program goes on

A message says what happened, to which file or object, and what to do.
"""

from __future__ import annotations

from os import PathLike, fspath


class OpscopeError(Exception):
    """Base of every error opscope raises on purpose."""

    exit_code = 2


class UsageError(OpscopeError, ValueError):
    """A value the user gave cannot be used."""


class FormatError(OpscopeError):
    """A file is not what it should be; names the file and, where known, the offset."""

    def __init__(
        self, path: str | PathLike[str], reason: str, *, offset: int | None = None
    ) -> None:
        self.path = fspath(path)
        self.reason = reason
        self.offset = offset
        where = self.path if offset is None else f"{self.path} at byte {offset}"
        super().__init__(f"{where}: {reason}")


class NewerFormatError(FormatError):
    """A file was written by a newer opscope than this one."""


class MissingValueError(OpscopeError, LookupError):
    """The values of a tensor were not kept in the run."""


class UnavailableError(OpscopeError):
    """A device, library or back end is missing on this machine."""

    exit_code = 125


class RecordError(OpscopeError):
    """Recording failed and ended; the watched program goes on."""
