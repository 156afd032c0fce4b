# SPDX-License-Identifier: Apache-2.0
"""Names of files for tensors: readable, safe on any file system, no two alike."""

from __future__ import annotations

import re
from threading import Lock

import xxhash

from opscope.run.schema import Call, Tensor

NAME_LIMIT = 255  # bytes of a file name that file systems take
_UNSAFE = re.compile(r"[^\w.+~#@=,()-]+", re.ASCII)


def safe(text: str) -> str:
    """The text with what file systems, shells or spreadsheets stumble over as "_"; never empty,
    never hidden.
    """
    return _UNSAFE.sub("_", text).lstrip(".-=+@") or "_"


def stem_of(call: Call, tensor: Tensor) -> str:
    """Name of a tensor's file without its suffix: {call}.{input|output}.{slot}."""
    return f"{safe(call.name)}.{tensor.io}.{safe(tensor.slot)}"


def folder_of(call: Call) -> str:
    """Folder of a call's files: rank{r}/step{s}."""
    return f"rank{call.rank}/step{call.step}"


class Names:
    """Hands out file names that are unique in their folder, whatever capitals mean there, and short
    enough.
    """

    def __init__(self) -> None:
        self._taken: dict[str, str] = {}
        self._lock = Lock()

    def take(self, folder: str, stem: str, suffix: str) -> str:
        """A name for one file; a long one ends in a hash of itself."""
        room = NAME_LIMIT - len(suffix.encode()) - 18
        short = (
            stem
            if len(stem.encode()) <= room
            else f"{stem[: room // 2]}~{xxhash.xxh3_64_hexdigest(stem.encode())}"
        )
        with self._lock:
            name, count = short + suffix, 1
            while f"{folder}/{name}".lower() in self._taken:
                count += 1
                name = f"{short}~{count}{suffix}"
            self._taken[f"{folder}/{name}".lower()] = stem
        return name
