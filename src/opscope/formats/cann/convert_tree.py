# SPDX-License-Identifier: Apache-2.0
"""Converts every dump file under a path into a tree of the same directories, so that no two files
of one name meet.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from opscope.formats.cann import names, tree
from opscope.formats.cann.convert import Failure, Request, convert
from opscope.formats.cann.output import Output

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


class Converted(msgspec.Struct, frozen=True):
    """How many files were written, and which dump files could not be converted wholly."""

    files: int
    failures: list[Failure]


def convert_tree(
    source: Path,
    request: Request,
    out: Path,
    *,
    only: Collection[str] | None,
    jobs: int,
    progress: Callable[[int, int], None],
) -> Converted:
    """Convert the dump files under source, or those of the paths (relative to it) that are named.

    Files lie under out as the dump files do under source. progress is told how many of how many
    files are done.
    """
    dumped = [file for file in tree.found(source) if only is None or file.relative in only]
    outputs = _Outputs(source if source.is_dir() else source.parent, out)
    finished = 0

    def done() -> None:
        nonlocal finished
        finished += 1
        progress(finished, len(dumped))

    failures = convert(
        ((file.path, outputs.of(file.relative)) for file in dumped), request, jobs=jobs, done=done
    )
    return Converted(outputs.files, failures)


class _Outputs:
    """One output for each directory, made when it is first needed."""

    def __init__(self, root: Path, out: Path) -> None:
        self._root, self._out = root, out
        self._known: dict[str, Output] = {}

    @property
    def files(self) -> int:
        return sum(output.files for output in self._known.values())

    def of(self, relative: str) -> Output:
        """The output for a file at this path under the root."""
        below = relative.rpartition("/")[0]
        output = self._known.get(below)
        if output is None:
            (self._out / below).mkdir(parents=True, exist_ok=True)
            output = self._known[below] = Output(
                self._out / below, names.read_mapping(self._root / below)
            )
        return output
