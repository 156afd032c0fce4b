# SPDX-License-Identifier: Apache-2.0
"""Which files under the given places are logs, graphs, kernels' descriptions, binaries and dumps,
judged by their content.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from opscope.ascend import graphs
from opscope.ascend.kernels import Kernel, is_kernel, read_kernel
from opscope.errors import FormatError, UsageError
from opscope.formats.bounded_json import load_json
from opscope.formats.cann import corefile, dumpfile, names
from opscope.formats.cann.corefile import CoreFile

MAX_FILES = 200_000
_HEAD = 8192
_JSON_MAX = 1 << 30
_LATE_KERNEL = 1 << 20
_SOURCES = (".cce", ".o.txt")
_PASSED = (
    ".py",
    ".npy",
    ".bin",
    ".png",
    ".html",
    ".pyc",
    ".so",
    ".zip",
    ".gz",
    ".tgz",
    ".tar",
    ".bz2",
    ".xz",
    ".txz",
    ".tbz2",
    ".om",
    ".onnx",
)
LOGS, GRAPHS, KERNELS, OBJECTS, DUMPS, CORES, BESIDE = (
    "logs",
    "graphs",
    "kernels",
    "objects",
    "dumps",
    "cores",
    "beside",
)
_KINDS = (LOGS, GRAPHS, KERNELS, OBJECTS, DUMPS, CORES, BESIDE)


class Collection(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one collection by what they are; beside are .cce, _loc.json and .o.txt of
    kernels.
    """

    logs: tuple[Path, ...] = ()
    graphs: tuple[tuple[Path, str], ...] = ()
    kernels: tuple[Kernel, ...] = ()
    objects: tuple[Path, ...] = ()
    dumps: tuple[Path, ...] = ()
    cores: tuple[CoreFile, ...] = ()
    beside: tuple[Path, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def files(self) -> int:
        return sum(len(getattr(self, name)) for name in _KINDS)


def collect(
    places: Iterable[Path],
    *,
    graphs_at: Path | None = None,
    kernels_at: Path | None = None,
    dumps_at: Path | None = None,
) -> Collection:
    """Look at every file under these places; the others overrule what is found of their kind.

    UsageError for a place that is not there.
    """
    collected = _sorted_out(places)
    for name, chosen_place in ((GRAPHS, graphs_at), (KERNELS, kernels_at), (DUMPS, dumps_at)):
        if chosen_place is None:
            continue
        there = _sorted_out([chosen_place])
        if not getattr(there, name) and not (name == DUMPS and there.cores):
            raise UsageError(f"{chosen_place}: holds no {name}")
        changes = {name: getattr(there, name)}
        if name == DUMPS:
            changes |= {CORES: there.cores or collected.cores}
        if name == KERNELS:
            changes |= {
                OBJECTS: there.objects or collected.objects,
                BESIDE: there.beside or collected.beside,
            }
        collected = msgspec.structs.replace(
            collected, **changes, problems=(*collected.problems, *there.problems)
        )
    return collected


def _sorted_out(places: Iterable[Path]) -> Collection:
    sorted_out: dict[str, list[object]] = {name: [] for name in _KINDS}
    problems: list[str] = []
    seen: set[Path] = set()
    for path, top in _files(places):
        real = path.resolve()
        if path.is_symlink() and not real.is_relative_to(top):
            problems.append(
                f"{path}: a link that leads out of what was collected; it was not followed"
            )
            continue
        if real in seen:
            continue
        seen.add(real)
        if len(seen) > MAX_FILES:
            problems.append(f"more than {MAX_FILES} files; the rest was not looked at")
            break
        try:
            kind_and_value = _kind(path)
        except (OSError, FormatError) as error:
            problems.append(
                f"{path}: cannot be read: {error.strerror}"
                if isinstance(error, OSError)
                else str(error)
            )
            continue
        if kind_and_value is not None:
            sorted_out[kind_and_value[0]].append(kind_and_value[1])
    return Collection(
        **{name: tuple(values) for name, values in sorted_out.items()},  # type: ignore[arg-type]
        problems=tuple(problems),
    )


def _files(places: Iterable[Path]) -> Iterator[tuple[Path, Path]]:
    """Each file, and the place it must lie in where it is a link; one that was given by its name
    may lie anywhere.
    """
    for given in places:
        if not given.exists():
            raise UsageError(f"{given}: no such file or directory")
        if not given.is_dir():
            yield given, Path("/")
            continue
        top = given.resolve()
        for folder, below, files in os.walk(given):
            below.sort()
            for name in sorted(files):
                path = Path(folder, name)
                if path.is_file():
                    yield path, top


def _kind(path: Path) -> tuple[str, object] | None:
    """What a file is, and what stands for it in a collection; None for what is of no use here."""
    with path.open("rb") as stream:
        head = stream.read(_HEAD)
    if not head or path.name.endswith(_PASSED):
        return None
    if head.startswith(b"\x7fELF"):
        return (CORES, corefile.read(path)) if corefile.is_corefile(head) else (OBJECTS, path)
    if path.name.endswith(_SOURCES):
        return BESIDE, path
    start = head.lstrip()[:1]
    if start in (b"{", b"["):
        return _json(path, head)
    form = graphs.kind(path)
    if form is not None:
        return GRAPHS, (path, form)
    if dumpfile.sniff(path) is not None:
        known = names.parse(path.name)
        return None if known is not None and known.opdebug else (DUMPS, path)
    return (LOGS, path) if _is_text(head) else None


def _json(path: Path, head: bytes) -> tuple[str, object] | None:
    """A kernel's description, a _loc.json, a model as JSON; a log may begin with a bracket too."""
    if head.lstrip().startswith(
        (b"[ERROR]", b"[INFO]", b"[WARN", b"[EVENT]", b"[DEBUG]", b"[TRACE]")
    ):
        return LOGS, path
    if path.name.endswith("_loc.json"):
        return BESIDE, path
    if path.stat().st_size > _JSON_MAX:
        return None
    if b'"graph"' in head[:2048] or b"binFileName" in head:
        document = load_json(path)
        if is_kernel(document):
            return KERNELS, read_kernel(path)
        if isinstance(document, dict) and isinstance(document.get("graph"), list):
            return GRAPHS, (path, graphs.JSON)
        return None
    if path.suffix == ".json":
        return _late_kernel(path)
    return (LOGS, path) if _is_text(head) else None


def _late_kernel(path: Path) -> tuple[str, object] | None:
    """A description whose name comes late in it; other people's JSON is none of our business, well
    formed or not.
    """
    if path.stat().st_size > _LATE_KERNEL:
        return None
    with contextlib.suppress(FormatError):
        if is_kernel(load_json(path)):
            return KERNELS, read_kernel(path)
    return None


def _is_text(head: bytes) -> bool:
    """Whether bytes are text of any encoding: few control characters. A log may have garbage in it,
    garbage has no log in it.
    """
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return True
    if b"):2" in head and b"[" in head:
        return True
    odd = sum(1 for byte in head if byte < 32 and byte not in (9, 10, 12, 13, 27))
    return odd * 20 < len(head)
