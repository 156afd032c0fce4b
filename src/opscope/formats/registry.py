# SPDX-License-Identifier: Apache-2.0
"""Which formats there are, and opening a run whatever wrote it.

A new format is one module with a Format in it and one line in BUILTIN; another package adds one
through the entry-point group "opscope.formats", whose entries are Format objects. Modules are
loaded only when a path is opened. The native format is tried first, then the built-in ones in
order, then those of other packages.
"""

from __future__ import annotations

import codecs
import os
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from opscope.errors import FormatError, UnavailableError
from opscope.formats.folders import link_out
from opscope.run.remote import Copy, RemoteFolder, is_url
from opscope.run.store.layout import RUN_FILE

if TYPE_CHECKING:
    from opscope.run.protocol import Run

GROUP = "opscope.formats"
BUILTIN = (
    "opscope.formats.native:FORMAT",
    "opscope.formats.parquet:FORMAT",
    "opscope.formats.mindspore:FORMAT",
    "opscope.formats.msprobe:FORMAT",
    "opscope.formats.ptdbg:FORMAT",
    "opscope.formats.accuracy_checker:FORMAT",
    "opscope.formats.cann.detection:FORMAT",
    "opscope.formats.debug_mode:FORMAT",
    "opscope.formats.onnxruntime:FORMAT",
    "opscope.formats.tfdbg:FORMAT",
    "opscope.formats.arrays:FORMAT",
)

_MAGIC = (
    (b"PK\x03\x04", "a zip archive, such as a PyTorch checkpoint or .npz"),
    (b"\x93NUMPY", "one NumPy array"),
    (b"\x80", "a Python pickle"),
    (b"\xff\xff\xff\xff", "an Arrow stream"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"{", "JSON text"),
)
_MAX_LISTED = 2000  # directory entries looked at to say what a directory holds


class Format(msgspec.Struct, frozen=True):
    """One format: its name, whether a path is in it (judged by content, never raising for bad
    content), and opening it.
    """

    name: str
    detect: Callable[[Path], bool]
    open: Callable[[Path], Run]


class Unavailable(msgspec.Struct, frozen=True):
    """A format whose module cannot be loaded here, and why."""

    name: str
    reason: str


def later(reference: str) -> Callable[[Path], Run]:
    """A function "module:name" whose module is loaded when it is first called, so that detecting a
    format stays quick.
    """

    def opening(path: Path) -> Run:
        module, _, name = reference.partition(":")
        opened: Run = getattr(import_module(module), name)(path)
        return opened

    return opening


def formats(builtin: Iterable[str] = BUILTIN) -> Iterator[Format | Unavailable]:
    """All formats in the order they are tried."""
    for reference in builtin:
        yield _load(reference, *reference.split(":"))
    from importlib.metadata import entry_points  # slow to import, and most paths are known by now

    for entry in entry_points(group=GROUP):
        yield _load(entry.name, entry.module, entry.attr)


def _load(name: str, module: str, attribute: str) -> Format | Unavailable:
    try:
        format_ = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        return Unavailable(name, str(error))
    if not isinstance(format_, Format):
        return Unavailable(name, f"{module}:{attribute} is not a Format")
    return format_


def open_run(path: Run | str | os.PathLike[str], *, builtin: Iterable[str] = BUILTIN) -> Run:
    """Open a run of any known format, detected by its content; a run that is open is given back.

    Raises what find_format and the format's reader raise.
    """
    if not isinstance(path, str | os.PathLike):
        return path
    if is_url(os.fspath(path)):
        return _open_remote(os.fspath(path), builtin)
    format_ = find_format(path, builtin=builtin)
    return format_.open(Path(path))


def _open_remote(url: str, builtin: Iterable[str]) -> Run:
    """A run behind a URL: opscope's own by ranges, the folder of another tool as a copy."""
    from opscope.run.store.remote import RemoteRun

    remote = RemoteFolder(url)
    sizes = remote.sizes()
    if RUN_FILE in sizes:
        return RemoteRun(remote, sizes)
    copy = Copy(remote)
    copy.take(sizes)
    run = find_format(copy.path, builtin=builtin).open(copy.path)
    weakref.finalize(run, copy.remove)
    return run


def find_format(path: str | os.PathLike[str], *, builtin: Iterable[str] = BUILTIN) -> Format:
    """The format a path is in, by its content.

    FormatError says what the path looks like when no format knows it, and which link leads out of
    it; UnavailableError when a format that could not be loaded might have
    known it.
    """
    root = Path(path)
    if not root.exists():
        raise FormatError(root, "no such file or directory")
    missing = []
    for candidate in formats(builtin):
        if isinstance(candidate, Unavailable):
            missing.append(candidate)
        elif candidate.detect(root):
            _check_links(root)
            return candidate
    reason = f"no known dump or run: {describe(root)}"
    if missing:
        raise UnavailableError(
            f"{root}: {reason}; not tried: "
            + ", ".join(f"{lost.name} ({lost.reason})" for lost in missing)
        )
    raise FormatError(root, reason)


def _check_links(root: Path) -> None:
    """FormatError where a link in a folder leads out of it: what a dump from somebody else names is
    not read in its place.
    """
    link = link_out(root) if root.is_dir() else None
    if link is not None:
        raise FormatError(
            link,
            f"a link that leads out of {root}, which is not followed; cp -rL makes a copy "
            "with what links name",
        )


def describe(path: Path) -> str:
    """What a path looks like, in words, for the message that nothing knows it."""
    try:
        return _describe_directory(path) if path.is_dir() else _describe_file(path)
    except OSError as error:
        return f"it cannot be read: {error.strerror}"


def _describe_directory(path: Path) -> str:
    entries = list(islice(path.iterdir(), _MAX_LISTED))
    if not entries:
        return "an empty directory"
    below = (
        file.parent.relative_to(path)
        for depth in ("*", "*/*", "*/*/*")
        for file in path.glob(f"{depth}/run.json")
    )
    runs = sorted(map(str, islice(below, _MAX_LISTED)))
    if runs:
        return (
            "it holds runs, open one of them: "
            f"{', '.join(runs[:5])}{', …' if len(runs) > 5 else ''}"
        )
    kinds = Counter(
        "directories" if entry.is_dir() else f"{entry.suffix or 'other'} files" for entry in entries
    )
    return "a directory of " + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(5))


def _describe_file(path: Path) -> str:
    if not path.is_file():
        return "no regular file"
    with path.open("rb") as file:
        start = file.read(64)
    if not start:
        return "an empty file"
    known = next((words for magic, words in _MAGIC if start.startswith(magic)), None)
    if known:
        return f"it begins like {known}"
    if _is_text(start):
        return "a text; runs are directories, and dumps have names and contents of their own"
    return f"it begins with the bytes {start.hex(' ')}"


def _is_text(start: bytes) -> bool:
    """Whether the first bytes of a file are text in UTF-8, which the last character may be cut
    of.
    """
    try:
        return (
            codecs.getincrementaldecoder("utf-8")()
            .decode(start)
            .replace("\n", "")
            .replace("\t", "")
            .replace("\r", "")
            .isprintable()
        )
    except UnicodeDecodeError:
        return False
