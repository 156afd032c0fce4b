# SPDX-License-Identifier: Apache-2.0
"""Folders behind URLs (s3://, gs://, https://, memory://, …), by fsspec.

A table that grows is there in pieces, each behind the offset of its first byte, since objects of a
store cannot be appended to:

    calls.arrow@000000000000000  calls.arrow@000000000524288  …

The whole file, where it is there too, is the one that counts.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import weakref
from collections import defaultdict
from pathlib import Path
from typing import Any

from opscope.errors import FormatError, UsageError

MOST_FILES = 1 << 20
_PIECE = re.compile(r"(.+)@(\d{15})")
_PART = re.compile(r"[^\x00-\x1f/\\]{1,255}")  # of a name from a listing: a plain one


def is_url(text: str) -> bool:
    """Whether a path is a URL."""
    return "://" in text


def piece_name(name: str, offset: int) -> str:
    """The name of a piece of a file that grows."""
    return f"{name}@{offset:015d}"


class RemoteFolder:
    """A folder behind a URL.

    UsageError where fsspec, or what the protocol needs, is not installed.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        try:
            from fsspec.core import url_to_fs

            self._files, root = url_to_fs(url, skip_instance_cache=True, use_listings_cache=False)
        except ImportError as error:
            raise UsageError(f'{url}: {error}; pip install "opscope[remote]"') from error
        except ValueError as error:
            raise UsageError(f"{url}: {error}") from error
        self._root = str(root).rstrip("/")

    def sizes(self) -> dict[str, int]:
        """What is below it, listed once: sizes by name. FormatError where nothing is, or where a
        name leads out of it.
        """
        try:
            facts_of = self._files.find(self._root, detail=True)
            if len(facts_of) <= MOST_FILES:
                sizes = {
                    self._name(path): self._size(path, facts) for path, facts in facts_of.items()
                }
        except FormatError:
            raise
        except Exception as error:
            raise FormatError(self.url, f"cannot be listed: {told(error)}") from error
        if not facts_of:
            raise FormatError(self.url, "nothing is there")
        if len(facts_of) > MOST_FILES:
            raise FormatError(
                self.url, f"holds {len(facts_of)} files; {MOST_FILES} at most are read"
            )
        return sizes

    def _name(self, path: str) -> str:
        name = str(path).removeprefix(self._root).strip("/")
        if not all(_is_plain(part) for part in name.split("/")):
            raise FormatError(self.url, f"holds a file of the name {name[:80]!r}")
        return name

    def _size(self, path: str, facts: dict[str, Any]) -> int:
        """The size of a file; asked for where a listing (a web server's) does not say."""
        size = facts.get("size")
        return int(self._files.size(path) if size is None else size)

    def read(self, name: str, start: int, end: int) -> bytes:
        """Bytes of a file from start to end, without the rest of it."""
        try:
            content: bytes = self._files.cat_file(f"{self._root}/{name}", start=start, end=end)
        except Exception as error:
            raise FormatError(f"{self.url}/{name}", f"cannot be read: {told(error)}") from error
        return content

    def fetch(self, name: str, to: Path, *, more: bool = False) -> None:
        """Write a whole file to a path here; more: behind what is there."""
        try:
            with (
                self._files.open(f"{self._root}/{name}", "rb") as file,
                to.open("ab" if more else "wb") as here,
            ):
                shutil.copyfileobj(file, here, 1 << 20)
        except Exception as error:
            raise FormatError(f"{self.url}/{name}", f"cannot be read: {told(error)}") from error

    def write(self, name: str, source: Path | bytes) -> None:
        """Write a file, whole, over what is there. Raises what the store raises."""
        path = f"{self._root}/{name}"
        if "/" in path and hasattr(self._files, "auto_mkdir"):
            self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        if isinstance(source, bytes):
            self._files.pipe_file(path, source)
        else:
            self._files.put_file(str(source), path)

    def remove(self, name: str) -> None:
        """Remove a file. Raises what the store raises."""
        self._files.rm_file(f"{self._root}/{name}")


class Copy:
    """Files of a remote folder in a folder here."""

    def __init__(self, remote: RemoteFolder) -> None:
        self._remote = remote
        held = tempfile.mkdtemp(prefix="opscope-")
        self._removed = weakref.finalize(self, shutil.rmtree, held, ignore_errors=True)
        last = remote.url.rpartition("/")[2]
        self.path = Path(held) / (last if _is_plain(last) else "run")
        self.path.mkdir(0o700)  # as runs are

    def whole(self) -> Copy:
        """The same, with all files."""
        self.take(self._remote.sizes())
        return self

    def remove(self) -> None:
        """Remove the folder; done, too, when nobody holds this any more."""
        self._removed()

    def take(self, sizes: dict[str, int]) -> None:
        """Fetch files, by name."""
        for name, pieces in _whole(sizes).items():
            target = self.path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            for number, piece in enumerate(pieces):
                self._remote.fetch(piece, target, more=number > 0)


def _whole(names: dict[str, int]) -> dict[str, list[str]]:
    """What each file is made of: itself, or its pieces up to the first that lacks."""
    pieces: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name in names:
        piece = _PIECE.fullmatch(name)
        if piece is not None and piece[1] not in names:
            pieces[piece[1]].append((int(piece[2]), name))
    made = {name: [name] for name in names if _PIECE.fullmatch(name) is None}
    for name, parts in pieces.items():
        end, made[name] = 0, []
        for offset, part in sorted(parts):
            if offset != end:
                break  # the reader says that it is torn
            made[name].append(part)
            end += names[part]
    return {name: parts for name, parts in made.items() if parts}


def _is_plain(name: str) -> bool:
    """Whether a part of a name from elsewhere names something in its folder."""
    return _PART.fullmatch(name) is not None and name not in {".", ".."}


def told(error: Exception) -> str:
    """What a store says, in one line."""
    return str(error).strip().partition("\n")[0][:300] or type(error).__name__
