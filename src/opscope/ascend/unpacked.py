# SPDX-License-Identifier: Apache-2.0
"""Archives among the places given (tar, zip, single .gz, .bz2 and .xz files), unpacked where only
this process looks.

What is unpacked is bounded, and the names of members are never trusted: only plain files, only
below the folder made for them.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

import msgspec

_TARS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
_SINGLE: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_MOST_BYTES = 8 << 30
_LARGEST_FOUND = 256 << 20  # bytes of an archive that was not given by name
_MOST_FILES = 100_000
_MOST_ARCHIVES = 1000
_PART = 1 << 16  # a torn stream loses its last part
_TORN = (
    OSError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
    ValueError,
    RuntimeError,
    NotImplementedError,
)


class Unpacked(msgspec.Struct, kw_only=True):
    """Folders that archives were unpacked into, by the archive's path, and what could not be."""

    folders: dict[str, Path] = {}
    problems: list[str] = []
    files: int = 0
    bytes: int = 0

    def named(self, value: Any) -> Any:
        """A tree of records and plain data with paths below these folders written as
        ARCHIVE/member.
        """
        if not self.folders:
            return value
        if isinstance(value, str):
            for archive, folder in self.folders.items():
                value = value.replace(str(folder), archive)
            return value
        if isinstance(value, dict):
            return {self.named(key): self.named(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(map(self.named, value))
        if isinstance(value, msgspec.Struct):
            fields = {name: self.named(getattr(value, name)) for name in value.__struct_fields__}
            return msgspec.structs.replace(value, **fields)
        return value


@contextmanager
def unpacked(places: Iterable[Path]) -> Iterator[Unpacked]:
    """Unpacks the archives among these files and below these folders; the folders are gone
    afterwards.
    """
    archives = [*_archives(places)]
    content = Unpacked()
    if not archives:
        yield content
        return
    with tempfile.TemporaryDirectory(prefix="opscope-") as top:
        for number, archive in enumerate(archives[:_MOST_ARCHIVES]):
            folder = Path(top, str(number))
            folder.mkdir()
            content.folders[str(archive)] = folder
            try:
                _unpack(archive, folder, content)
            except _TORN as error:
                content.problems.append(f"{archive}: cannot be unpacked to its end: {error}")
        yield content


def _archives(places: Iterable[Path]) -> Iterator[Path]:
    """The archives given by name, and those below the folders that may be logs: not somebody's data
    set.
    """
    for given in places:
        if given.is_file():
            if given.name.lower().endswith((*_TARS, *_SINGLE, ".zip")):
                yield given
            continue
        files_below = (
            Path(folder, name) for folder, _, files in os.walk(given) for name in sorted(files)
        )
        yield from (path for path in files_below if _may_be_logs(path))


def _may_be_logs(path: Path) -> bool:
    name = path.name.lower()
    if name.endswith((*_TARS, ".zip")):
        return path.is_file() and path.stat().st_size <= _LARGEST_FOUND
    ending = next((one for one in _SINGLE if name.endswith(one)), None)
    return (
        ending is not None
        and name.removesuffix(ending).endswith((".log", ".txt"))
        and path.is_file()
    )


def _unpack(archive: Path, folder: Path, taken: Unpacked) -> None:
    name = archive.name.lower()
    if name.endswith(_TARS):
        with tarfile.open(archive) as tar:
            for member in tar:
                if (
                    member.isfile()
                    and (target := _below(folder, member.name)) is not None
                    and (stream := tar.extractfile(member)) is not None
                ):
                    _write(stream, target, taken)
    elif name.endswith(".zip"):
        with zipfile.ZipFile(archive) as zipped:
            for info in zipped.infolist():
                nameless_or_folder = info.filename[-1:] in (
                    "",
                    "/",
                )  # ZipInfo.is_dir looks for a last character, which there need not be
                if (
                    not nameless_or_folder
                    and not info.flag_bits & 1
                    and (target := _below(folder, info.filename)) is not None
                ):
                    with zipped.open(info) as content:
                        _write(content, target, taken)
    else:
        ending = next(one for one in _SINGLE if name.endswith(one))
        opened: IO[bytes] = _SINGLE[ending](archive, "rb")
        with opened as single:
            _write(single, folder / (archive.name[: -len(ending)] or "content"), taken)


def _below(folder: Path, name: str) -> Path | None:
    """Where a member goes: below the folder, whatever its name says; None for a name that leads
    elsewhere or is too long.
    """
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if (
        not parts
        or ".." in parts
        or "\0" in name
        or any(len(part.encode("utf-8", "surrogateescape")) > 255 for part in parts)
    ):
        return None
    return folder.joinpath(*(part for part in parts if part not in ("/", ".")))


def _write(stream: IO[bytes], target: Path, content: Unpacked) -> None:
    content.files += 1
    if content.files > _MOST_FILES:
        raise ValueError(f"more than {_MOST_FILES} files")
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as out:
        while part := stream.read(_PART):
            content.bytes += len(part)
            if content.bytes > _MOST_BYTES or shutil.disk_usage(target.parent).free < _PART << 12:
                raise ValueError(f"{content.bytes} bytes unpacked: no more is")
            out.write(part)
