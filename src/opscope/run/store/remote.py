# SPDX-License-Identifier: Apache-2.0
"""A native run behind a URL: its tables are fetched one by one when they are read, of its values
what is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from opscope.errors import FormatError, MissingValueError
from opscope.run.remote import Copy, RemoteFolder, is_url
from opscope.run.schema import TABLES
from opscope.run.store.layout import PROCESSES, RUN_FILE, is_shard_name
from opscope.run.store.reader import NativeRun
from opscope.run.store.shard_reader import Files, Shard
from opscope.run.store.shards import parse_header

_TABLE = re.compile(rf"(?:{'|'.join(TABLES)})(?:-\d+)?\.arrow(?:@|$)")
_AHEAD = 64 << 10  # bytes read with the length of a header, which most headers fit into


class RemoteShard(Shard):
    """A shard of which only what is asked for is read."""

    def __init__(self, remote: RemoteFolder, name: str, size: int) -> None:
        self.path = Path(name)
        self._remote, self._name = remote, name
        head = remote.read(name, 0, min(_AHEAD, size))
        length = 8 + int.from_bytes(head[:8], "little")
        if len(head) < length <= size:
            head += remote.read(name, len(head), length)
        try:
            self._start, self._entries = parse_header(head, size)
        except ValueError as error:
            raise FormatError(f"{remote.url}/{name}", str(error), offset=0) from error

    def bytes_of(self, key: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The bytes of a value, read now."""
        begin, end = self.entry(key).data_offsets
        data = self._remote.read(self._name, self._start + begin, self._start + end)
        if len(data) != end - begin:
            raise FormatError(f"{self._remote.url}/{self._name}", "a value is cut off")
        return np.frombuffer(data, dtype=np.uint8)


class RemoteRun(NativeRun):
    """A native run behind a URL; of `directories` alone where they are given.

    Raises what NativeRun raises, UsageError where the protocol is unknown here.
    """

    def __init__(
        self,
        remote: RemoteFolder,
        sizes: dict[str, int] | None = None,
        directories: Sequence[str] | None = None,
    ) -> None:
        self._remote = remote
        self._sizes = remote.sizes() if sizes is None else sizes
        self._copy = Copy(remote)
        self._copy.take(
            {
                name: size
                for name, size in self._sizes.items()
                if _is_of(name, directories) and not _comes_later(name)
            }
        )
        files = Files(self._shard, self._arrive)
        super().__init__(self._copy.path, directories, files=files)
        self.info = msgspec.structs.replace(self.info, path=remote.url)

    def _shard(self, path: Path) -> Shard:
        name = path.relative_to(self._copy.path).as_posix()
        if name not in self._sizes:
            raise MissingValueError(f"{self._remote.url}/{name}: the shard is not there")
        return RemoteShard(self._remote, name, self._sizes[name])

    def _arrive(self, directory: Path, table: str) -> None:
        """Fetch the segments of a table of a process."""
        beginning = f"{PROCESSES}/{directory.name}/{table}"
        self._copy.take(
            {
                name: size
                for name, size in self._sizes.items()
                if name.startswith((f"{beginning}.arrow", f"{beginning}-")) and _comes_later(name)
            }
        )

    @property
    def problems(self) -> tuple[str, ...]:
        """As of a run here, with the URL."""
        return self._told(super().problems)

    @property
    def gaps(self) -> tuple[str, ...]:
        """As of a run here, with the URL."""
        return self._told(super().gaps)

    def _told(self, lines: tuple[str, ...]) -> tuple[str, ...]:
        here = str(self._copy.path)
        return tuple(line.replace(here, self._remote.url) for line in lines)


def _comes_later(name: str) -> bool:
    """Whether a file is fetched when it is asked for: shards by ranges, tables whole."""
    last = name.rpartition("/")[2]
    return is_shard_name(last) or _TABLE.match(last) is not None


def _is_of(name: str, directories: Sequence[str] | None) -> bool:
    """Whether a file is one of the run's own, or of these processes."""
    parts = name.split("/")
    if parts[0] != PROCESSES or len(parts) < 3:
        return name == RUN_FILE or directories is None
    return directories is None or parts[1] in directories


def open_part(path: str, directories: Sequence[str]) -> NativeRun:
    """Processes of a run, here or behind a URL, by the names of their directories."""
    if is_url(path):
        return RemoteRun(RemoteFolder(path), directories=directories)
    return NativeRun(path, directories)
