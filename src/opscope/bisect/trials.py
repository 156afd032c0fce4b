# SPDX-License-Identifier: Apache-2.0
"""Runs the command again and again, each time in fresh processes, and remembers what came of it in
a log.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from opscope.bisect.oracle import Observation
from opscope.errors import FormatError, UnavailableError, UsageError
from opscope.record.launch import read_notes
from opscope.repro.answering import environment_without, kill_group
from opscope.run.store.layout import process_directories
from opscope.run.store.public import public_command

LOG = "bisect.log"
# seconds a run may take while nothing is known of the command, or nothing but that it does not end
LONGEST = 1800.0
KILLED_AFTER = 10.0
# A shell that reads a line from who started it; when that one is gone without having written any,
# the group of processes is ended.
GUARD = f'read line || {{ kill -s TERM -- "-$1"; sleep {KILLED_AFTER:g}; kill -s KILL -- "-$1"; }}'


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the log: which elements were changed, what came of it, and where the trial
    lies.
    """

    elements: tuple[str, ...]
    verdict: str
    exit_code: int | None
    seconds: float
    folder: str


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """First line of the log: what is searched, as a number that changes with command, oracle and
    options; command is for people.
    """

    search: str
    command: tuple[str, ...]


class Trials:
    """The folder of one search: log, trials, good/ and bad/.

    A folder that holds a log of the same search is gone on with; one of another search, or of
    anything else, is refused. recording holds options of every recording of the search.
    """

    def __init__(
        self,
        folder: Path,
        command: Sequence[str],
        *,
        question: str,
        timeout: float | None,
        recording: Sequence[str] = (),
        told: Callable[[int], None] = lambda made: None,  # noqa: ARG005
    ) -> None:
        self.folder = folder.absolute()
        self.command = tuple(command)
        self.timeout = timeout
        self.records: list[Record] = []
        self.made = 0
        self._told = told
        self._recording = tuple(recording)
        asked = (self.command, question, str(Path.cwd()), *self._recording)
        search = hashlib.sha256(repr(asked).encode()).hexdigest()[:16]
        self._head = Head(search=search, command=public_command(self.command))
        self._read()

    def _read(self) -> None:
        path = self.folder / LOG
        if not self.folder.exists() or not any(self.folder.iterdir()):
            self.folder.mkdir(0o700, parents=True, exist_ok=True)
            path.write_bytes(msgspec.json.encode(self._head) + b"\n")
            return
        try:
            content = path.read_bytes()
            lines = content.splitlines()
            head = msgspec.json.decode(lines[0] if lines else b"", type=Head)
        except (OSError, msgspec.MsgspecError) as error:
            raise UsageError(
                f"{self.folder} exists and holds no search of opscope bisect; give another "
                "folder with -o"
            ) from error
        if head.search != self._head.search:
            raise UsageError(
                f"{self.folder} holds a search for another command or question; give another "
                "folder with -o"
            )
        if not content.endswith(b"\n"):
            path.write_bytes(content + b"\n")  # a line that was cut must not swallow the next one
        for line in lines[1:]:
            with contextlib.suppress(msgspec.MsgspecError):
                self.records.append(msgspec.json.decode(line, type=Record))

    def known(self, elements: Sequence[str]) -> tuple[Record, ...]:
        """What came of these elements before."""
        wanted = tuple(sorted(elements))
        return tuple(record for record in self.records if record.elements == wanted)

    def seen(self, record: Record) -> Observation:
        """What a trial of the log showed."""
        return Observation(
            folder=self.folder / record.folder, exit_code=record.exit_code, seconds=record.seconds
        )

    def learn(self, exit_code: int | None, seconds: float) -> None:
        """How long a run may take, from how the first one ended, where nobody said it."""
        if self.timeout is None:
            self.timeout = LONGEST if exit_code is None else 60 + 50 * seconds

    def observe(
        self, options: Sequence[str], environment: Mapping[str, str | None], name: str
    ) -> Observation:
        """Run the command under `opscope run` with these options; a variable that is None is taken
        out.
        """
        self._told(self.made)
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)  # of a trial that was interrupted
        folder.mkdir(parents=True)
        words = [
            sys.executable,
            "-m",
            "opscope",
            "run",
            "-o",
            str(folder / "run"),
            *self._recording,
            *options,
            "--",
            *self.command,
        ]
        own = environment_without("OPSCOPE")
        for key, value in environment.items():
            own.pop(key, None)
            own.update({} if value is None else {key: value})
        start = time.monotonic()
        with (folder / "stdout.txt").open("wb") as out, (folder / "stderr.txt").open("wb") as err:
            code = _run(words, own, out, err, self.timeout or LONGEST)
        self.made += 1
        self._told(self.made)
        _check_recorded(folder)
        seconds = round(time.monotonic() - start, 3)
        self.learn(code, seconds)
        return Observation(folder=folder, exit_code=code, seconds=seconds)

    def note(self, elements: Sequence[str], verdict: str, seen: Observation) -> Record:
        """Write what came of a trial."""
        record = Record(
            elements=tuple(sorted(elements)),
            verdict=verdict,
            exit_code=seen.exit_code,
            seconds=seen.seconds,
            folder=seen.folder.name,
        )
        self.records.append(record)
        try:
            with (self.folder / LOG).open("ab") as file:
                file.write(msgspec.json.encode(record) + b"\n")
        except OSError as error:
            raise FormatError(
                self.folder / LOG,
                f"cannot be written ({error.strerror}); free space and start again",
            ) from error
        return record

    def show(self, record: Record, name: str) -> Path:
        """Give a trial the name good or bad, by which people find it."""
        target = self.folder / name
        if target.is_symlink() or target.exists():
            target.unlink()
        target.symlink_to(record.folder)
        return target


def _check_recorded(folder: Path) -> None:
    """UnavailableError for a trial that says nothing: what it was to change was not at work."""
    run = folder / "run"
    notes = read_notes(run)
    if notes and not process_directories(run):
        raise UnavailableError(f"a run of the command proves nothing: {notes[0]}; see {folder}")


def _run(
    words: Sequence[str], environment: Mapping[str, str], out: Any, err: Any, timeout: float | None
) -> int | None:
    """Exit code, 128 + n for signal n, None when the command had to be stopped."""
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        env=dict(environment),
        start_new_session=True,
    )
    try:
        with _guarded(process.pid):
            code = process.wait(timeout)
        return 128 - code if code < 0 else code
    except subprocess.TimeoutExpired:
        _end(process)
        return None
    except BaseException:
        _end(process)
        raise


@contextlib.contextmanager
def _guarded(group: int) -> Iterator[None]:
    """A block during which a group of processes does not outlive this one: nobody is asked when a
    process is killed by SIGKILL.
    """
    words = ["/bin/sh", "-c", GUARD, "opscope-bisect", str(group)]
    guard = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        guard.communicate(b"the block is over\n")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the command and all it started: asked first, so that the recording is closed, and at once
    when interrupted again.
    """
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired, KeyboardInterrupt):
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(KILLED_AFTER)
    kill_group(process)  # who would not be asked, the command's own children too
    process.wait()


Tell = Callable[[str], None]
