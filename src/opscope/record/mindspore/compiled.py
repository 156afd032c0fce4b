# SPDX-License-Identifier: Apache-2.0
"""Compiled parts of a PyNative program: the process itself takes what they dump, between the
primitives around them.

So a graph's kernels stand in the tables where they ran, and edges lead in and out of them. While no
primitive was recorded, in a program that is all one graph, the launcher takes the dump (watch.py);
a lock keeps the two apart.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from opscope.record.mindspore.place import Facts, settings_document, write_facts, write_settings

LOCK = "taking"
TIMESTAMP = re.compile(r"\.([0-9]{10,20})\.(?:in|out)put\.")


@contextlib.contextmanager
def taking(process_folder: Path) -> Iterator[None]:
    """Hold the right to take folders of this process's dump; OSError where the lock cannot be
    made.
    """
    import fcntl  # no such module on Windows, where MindSpore dumps nothing

    with (process_folder / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class CompiledParts:
    """The dump of this process, as it takes it itself.

    synchronize waits for MindSpore to finish what it was given. counts: iterations of graphs are
    the steps of the program, which is in graph mode; in PyNative mode each graph's number goes its
    own way.
    """

    def __init__(self, place: Path, facts: Facts, synchronize: Callable[[], None]) -> None:
        self.place = place
        self.facts = facts
        self.own = False
        self.counts = False
        self._synchronize = synchronize
        self._dump = Path(facts.dump)
        # Of a dump of the user's, which stays; an earlier run's included.
        self._taken = set() if facts.owned else set(folders_of(self._dump))

    def claim(self, *, counts: bool) -> None:
        """From now on the launcher leaves the dump alone until this process has ended."""
        if self.own:
            return
        self.own, self.counts = True, counts
        if self._taken:
            print(
                f"opscope: {self._dump} holds an earlier dump; iterations that it has are "
                "left out of the run",
                file=sys.stderr,
            )
        self.facts = msgspec.structs.replace(self.facts, taken_inside=True)
        write_facts(self.place, self.facts)
        if not counts and self.facts.owned:
            write_settings(self.place, settings_document(self._dump, None))

    def take(self, action: Callable[[Path], None], *, wait: bool = False) -> None:
        """Do this to every folder that has landed, in the order they ran; wait for what is still
        running.
        """
        if wait:
            self._synchronize()
        if not self.own or next(self._fresh(), None) is None:
            return
        if not wait:
            self._synchronize()
        with taking(self.place):
            for folder in sorted(self._fresh(), key=began):
                action(folder)
                if not self.facts.owned:
                    self._taken.add(folder)

    def remove(self, folder: Path) -> None:
        """Delete a folder of a dump that is ours."""
        if self.facts.owned:
            shutil.rmtree(folder, ignore_errors=True)

    def _fresh(self) -> Iterator[Path]:
        return (folder for folder in folders_of(self._dump) if folder not in self._taken)


def folders_of(dump: Path) -> Iterator[Path]:
    """Folders of iterations that have landed."""
    for graph in _inside(dump, depth=3):
        if os.path.basename(graph).isdigit():  # noqa: PTH119 - asked after every primitive
            yield from (
                Path(path)
                for path in _inside(graph, depth=1)
                if os.path.basename(path).isdigit()  # noqa: PTH119
            )


def _inside(path: Path | str, *, depth: int) -> Iterator[str]:
    """Directories so many levels below a path; none where it does not exist."""
    try:
        with os.scandir(path) as entries:
            directories = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for below in directories:
        if depth == 1:
            yield below
        else:
            yield from _inside(below, depth=depth - 1)


def began(folder: Path) -> int:
    """Time of the first file of a folder, by the names of its files."""
    times = [int(time[1]) for entry in os.scandir(folder) if (time := TIMESTAMP.search(entry.name))]
    return min(times, default=0)
