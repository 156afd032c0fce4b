# SPDX-License-Identifier: Apache-2.0
"""A run that is written here and shipped to a URL while the program runs.

Shards are shipped when they are complete, tables by the bytes they have grown by (run.remote says
under which names), other files whole when they have changed. At the end of the command tables
become whole files, so that a copy of the folder is a run like any other. What cannot be shipped is
tried again; the run here stays.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from opscope.errors import OpscopeError
from opscope.run.remote import RemoteFolder, piece_name, told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EVERY = 2.0  # seconds between two looks
SELDOM = 10.0  # between two copies of a file that is written all the time
MOST_MISSED = 3  # files in a row that a store did not take: it is asked again later
PATIENCE = 120.0  # seconds that the end waits without anything arriving
_GROWS = (".arrow",)
_REWRITTEN = ("extremes.arrow",)
_SETTLED = (".safetensors", ".json")  # renamed into place: never half written


class Shipper:
    """Ships the files of a run from its own thread; never raises into whoever started it."""

    def __init__(self, run: Path, url: str, tell: Callable[[str], None]) -> None:
        """OpscopeError where the URL's protocol is not known here."""
        self._run, self._remote, self._tell = run, RemoteFolder(url), tell
        self._grown: dict[str, int] = {}  # bytes shipped of what grows
        self._pieces: dict[str, list[str]] = {}
        self._seen: dict[str, tuple[int, int]] = {}  # size and time of what was shipped whole
        self._sent: dict[str, float] = {}  # when
        self._failed = ""
        self._arrived = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ship, name="opscope-ship", daemon=True)

    def __enter__(self) -> Shipper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing ends yet: finish ships what sealing the run changes."""

    def finish(self) -> None:
        """Ship the rest and wait for it; what did not arrive is said."""
        self._arrived = time.monotonic()
        self._over.set()
        while self._thread.is_alive() and time.monotonic() - self._arrived < PATIENCE:
            self._thread.join(0.2)
        if self._thread.is_alive() or self._failed:
            why = self._failed or f"nothing arrived for {PATIENCE:.0f} s"
            self._tell(f"{self._remote.url}: not all was shipped: {why}; the run is in {self._run}")
        else:
            self._tell(f"shipped to {self._remote.url}")

    def _ship(self) -> None:
        last = False
        while not last:
            last = self._over.wait(EVERY)
            before = self._failed
            self._failed = ""
            missed = 0
            for name, path in self._files():
                missed = 0 if self._contained(self._send, name, path, last) else missed + 1
                if missed == MOST_MISSED:
                    break
            if not missed:
                self._contained(self._forget)
            if last and not self._failed:
                self._contained(self._join)
            if self._failed and not before and not last:
                self._tell(f"{self._remote.url}: {self._failed}; it is tried again")

    def _contained(self, step: Callable[..., None], *given: object) -> bool:
        try:
            step(*given)
        except FileNotFoundError:
            return True  # deleted with old steps
        except Exception as error:  # noqa: BLE001 - every store has exceptions of its own
            self._failed = told(error)
            return False
        return True

    def _files(self) -> Iterator[tuple[str, Path]]:
        """What is there to ship: run.json last, so that a reader finds what it speaks of."""
        files = [
            (path.relative_to(self._run).as_posix(), path)
            for path in self._run.rglob("*")
            if not path.name.startswith(".")
            and not path.name.endswith(".partial")
            and path.is_file()
            and not path.is_symlink()
        ]
        yield from sorted(files, key=lambda one: (one[0] == "run.json", one[0]))

    def _send(self, name: str, path: Path, last: bool) -> None:  # noqa: FBT001 - of a step alone
        if path.suffix in _GROWS and path.name not in _REWRITTEN:
            self._grow(name, path)
            return
        facts = path.stat()
        state = facts.st_size, facts.st_mtime_ns
        if self._seen.get(name) == state:
            return
        recent = time.monotonic() - self._sent.get(name, -SELDOM) < SELDOM
        if recent and not last and path.suffix not in _SETTLED:
            return
        self._remote.write(name, path)
        self._seen[name], self._sent[name] = state, time.monotonic()
        self._arrived = time.monotonic()

    def _grow(self, name: str, path: Path) -> None:
        start = self._grown.get(name, 0)
        if path.stat().st_size < start:  # cut back after a failed write
            for piece in self._pieces.pop(name, []):
                self._remote.remove(piece)
            start = self._grown[name] = 0
        with path.open("rb") as file:
            file.seek(start)
            while data := file.read(8 << 20):
                piece = piece_name(name, start)
                self._remote.write(piece, data)
                self._pieces.setdefault(name, []).append(piece)
                start += len(data)
                self._grown[name] = start
                self._arrived = time.monotonic()

    def _forget(self) -> None:
        """Remove what the recorder has deleted with old steps."""
        for name in [name for name in self._seen if not (self._run / name).exists()]:
            self._remote.remove(name)
            del self._seen[name]
        for name in [name for name in self._pieces if not (self._run / name).exists()]:
            for piece in self._pieces.pop(name):
                self._remote.remove(piece)

    def _join(self) -> None:
        """Make whole files of what went in pieces."""
        for name in list(self._pieces):
            self._remote.write(name, self._run / name)
            self._arrived = time.monotonic()
            for piece in self._pieces.pop(name):
                self._remote.remove(piece)


def shipper(run: Path, url: str, tell: Callable[[str], None]) -> Shipper | None:
    """One for a run, None, and why, where the URL cannot be written to."""
    try:
        return Shipper(run, url, tell)
    except OpscopeError as error:
        tell(f"not shipped: {error}")
        return None
