# SPDX-License-Identifier: Apache-2.0
"""Find the folders of an msprobe dump.

    {root}[/graph|/pynative]/step{n}/{rank{r} | rank | proc{pid} | pid{pid}}/
        dump.json  stack.json  construct.json  debug.json  dump_tensor_data/*.pt|*.npy

Any folder on the way, or the json itself, may be given. A process whose rank was never known is
named by its number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from opscope.formats.folders import walk

JSONS = ("dump.json", "debug.json")
_DEPTH = 4
_STEP = re.compile(r"step(\d{1,9})")
_OWNER = re.compile(r"(rank(?=\d{0,9}$)|proc|pid)(\d{0,12})")
_HEAD = re.compile(rb'^\s*\{[^{}\[\]]*"(?:task|level|dump_data_dir|data)"\s*:')


class Place(msgspec.Struct, frozen=True):
    """One folder with a dump: step, and who wrote it (rank is None where only a process number is
    known).
    """

    folder: Path
    step: int
    owner: str
    rank: int | None
    files: tuple[str, ...]


def find_places(root: Path) -> list[Place]:
    """Folders with a dump.json or debug.json at or below root, by owner and step."""
    if root.is_file():
        return [_place(root.parent, (root.name,))]
    places = [_place(folder, files) for folder, files in _folders(root)]
    return sorted(
        places,
        key=lambda place: (
            place.rank is None,
            place.rank or 0,
            place.owner,
            place.step,
            str(place.folder),
        ),
    )


def _folders(root: Path) -> Iterator[tuple[Path, tuple[str, ...]]]:
    for folder, _ in walk(root, _DEPTH, JSONS):
        files = tuple(name for name in JSONS if (folder / name).is_file())
        if files:
            yield folder, files


def _place(folder: Path, files: tuple[str, ...]) -> Place:
    names = (folder if folder.is_absolute() else folder.resolve()).parts[-3:]
    step = next((int(named[1]) for name in reversed(names) if (named := _STEP.fullmatch(name))), 0)
    owner = next((named for name in reversed(names) if (named := _OWNER.fullmatch(name))), None)
    if owner is None:
        return Place(folder, step, "", None, files)
    rank = None if owner[1] != "rank" else int(owner[2] or 0)
    return Place(folder, step, owner[0], rank, files)


def looks_like_dump(path: Path) -> bool:
    """Whether a path is, or holds, a dump.json of msprobe, by the first bytes of the file."""
    if path.is_file():
        return path.suffix == ".json" and _has_head(path)
    return any(_has_head(folder / files[0]) for folder, files in _folders(path))


def _has_head(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return _HEAD.match(stream.read(4096)) is not None
    except OSError:
        return False
