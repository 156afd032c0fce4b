# SPDX-License-Identifier: Apache-2.0
"""One run of the parts of a job whose launchers shared no disk.

A part belongs where it names the same job as another one: OPSCOPE_JOB where both were given it,
else every one of JOB_VARIABLES that both know, within one attempt of an elastic launcher. Clocks
and command lines prove nothing and are not asked. Files of a part are linked, or copied to another
disk; only process.json is written anew, since each part counts its processes from 0.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from opscope.errors import FormatError, UsageError
from opscope.run.schema import Process
from opscope.run.store.layout import (
    PROCESS_FILE,
    PROCESSES,
    RUN_FILE,
    RunFile,
    file_mode,
    make_directory,
    number_process,
    process_directories,
    read_process,
    read_run_file,
    seal_run,
    write_json,
)
from opscope.run.store.public import HIDDEN

JOB = "OPSCOPE_JOB"
ATTEMPT = "TORCHELASTIC_RESTART_COUNT"
JOB_VARIABLES = (
    "TORCHELASTIC_RUN_ID",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "PMIX_NAMESPACE",
    "MASTER_ADDR",
    "MASTER_PORT",
)
_NO_NAME = {"", "none", HIDDEN}  # "none" is torchrun's for a job without a name


class Part(msgspec.Struct, frozen=True):
    """One run directory; processes are those with a process.json that can be read."""

    path: Path
    file: RunFile
    processes: tuple[Process, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """The recordings in it: itself, or what it was merged of."""
        return self.file.parts or (self.file.run_id,)

    @property
    def workers(self) -> list[Process]:
        """Its processes that know how many ranks there are; a launcher does not."""
        return [process for process in self.processes if process.world is not None]


def merge(parts: Sequence[Path], out: Path) -> Path:
    """Make out the run of these parts, and return it; out that was merged before is added to.

    The same parts make the same run, in whatever order and however often. UsageError, and nothing
    is written, when a part is of another job, has a rank that another one has, or names no job;
    FormatError for a part that cannot be read.
    """
    before = [_read(out)] if out.exists() else []
    if before and not before[0].file.parts:
        raise UsageError(f"{out}: exists and was not merged; choose another with -o")
    unique = list(_unique([*before, *map(_read, parts)]))
    if not unique:
        raise UsageError("nothing to merge; write: opscope merge PART PART… -o RUN")
    if unique == before:
        return out
    _check_job(unique)
    _check_ranks(unique)
    _replace(out, sorted(unique, key=_place))
    return out


def _read(path: Path) -> Part:
    if not path.is_dir():
        raise FormatError(path, "no such run; a part is the directory that opscope run -o made")
    file = read_run_file(path)
    processes = []
    for number, directory in enumerate(process_directories(path)):
        with suppress(FormatError):
            processes.append(read_process(directory, number))
    return Part(path, file, tuple(processes))


def _unique(parts: Sequence[Part]) -> Iterator[Part]:
    """The parts without those that another one holds."""
    seen: set[str] = set()
    for part in sorted(parts, key=lambda part: -len(part.ids)):
        if not seen >= set(part.ids):
            yield part
        seen.update(part.ids)


def _check_job(parts: Sequence[Part]) -> None:
    """Refuse what no chain of parts with a job in common leads to from the first one."""
    joined, apart = list(parts[:1]), list(parts[1:])
    while apart:
        related = [part for part in apart if any(_one_job(part, other) for other in joined)]
        if not related:
            first, odd = parts[0], apart[0]
            raise UsageError(
                f"{odd.path}: nothing says that it is of the job of {first.path} "
                f"({_unlike(first, odd)}); give every launcher of a job the same {JOB}"
            )
        joined.extend(related)
        apart = [part for part in apart if part not in related]


def _one_job(part: Part, other: Part) -> bool:
    return any(
        _same_job(mine.environment, theirs.environment)
        for mine in _jobs(part)
        for theirs in _jobs(other)
    )


def _jobs(part: Part) -> list[Process]:
    """One process for each job and attempt that a part names."""
    names = (JOB, ATTEMPT, *JOB_VARIABLES)
    return list({tuple(map(each.environment.get, names)): each for each in part.workers}.values())


def _same_job(mine: dict[str, str], theirs: dict[str, str]) -> bool:
    if mine.get(JOB) or theirs.get(JOB):
        return mine.get(JOB) == theirs.get(JOB) != HIDDEN
    told = [
        (mine[name], theirs[name])
        for name in JOB_VARIABLES
        if mine.get(name, "") not in _NO_NAME and theirs.get(name, "") not in _NO_NAME
    ]
    return (
        bool(told)
        and all(one == other for one, other in told)
        and mine.get(ATTEMPT) == theirs.get(ATTEMPT)
    )


def _unlike(part: Part, other: Part) -> str:
    """What two parts say of their jobs, the first that differs."""
    for each in (part, other):
        if not each.workers:
            return f"{each.path} holds no process that knows its world"
    mine, theirs = (each.workers[0].environment for each in (part, other))
    for name in (JOB, *JOB_VARIABLES, ATTEMPT):
        if mine.get(name) != theirs.get(name):
            return f"{name} is {theirs.get(name, 'not set')}, not {mine.get(name, 'not set')}"
    return "neither names one"


def _check_ranks(parts: Sequence[Part]) -> None:
    """Refuse two parts that have one rank in one attempt, or worlds of two sizes."""
    holders: dict[tuple[str | None, int], Part] = {}
    worlds: dict[str | None, tuple[int | None, Part]] = {}
    for part in parts:
        for process in part.workers:
            attempt = process.environment.get(ATTEMPT)
            holder = holders.setdefault((attempt, process.rank), part)
            if holder is not part:
                raise UsageError(
                    f"{part.path}: has rank {process.rank}, which {holder.path} has, too; "
                    "name each part of one job once"
                )
            world, first = worlds.setdefault(attempt, (process.world, part))
            if world != process.world:
                raise UsageError(
                    f"{part.path}: recorded {process.world} ranks in all, {first.path} {world}; "
                    "these are two jobs"
                )


def _place(part: Part) -> tuple[int, tuple[str, ...]]:
    return min((process.rank for process in part.workers), default=-1), part.ids


def _replace(out: Path, parts: Sequence[Part]) -> None:
    """Build the run beside its place, then put it there."""
    beside, old = (out.with_name(f".{out.name}.{word}.{os.getpid()}") for word in ("new", "old"))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        _build(beside, parts)
        if out.exists():
            out.rename(old)
        beside.rename(out)
    except OSError as error:
        if old.exists():
            old.rename(out)
        raise UsageError(
            f"{out}: cannot write the run: {error.strerror}; choose another place with -o"
        ) from error
    finally:
        for left in (beside, old):
            shutil.rmtree(left, ignore_errors=True)


def _build(run: Path, parts: Sequence[Part]) -> None:
    private = any(file_mode(part.path) == 0o600 for part in parts)
    run.mkdir(0o700 if private else 0o777)
    make_directory(run / PROCESSES)
    for part in parts:
        for source in process_directories(part.path):
            _take(source, _free(run / PROCESSES / source.name))
    write_json(run / RUN_FILE, _run_file(parts))
    if all(part.file.sealed for part in parts):
        seal_run(run)


def _free(wanted: Path) -> Path:
    """A name for a process directory; containers of one host name may have started alike."""
    stem, _, start = wanted.name.rpartition("-")
    number = int(start)
    while (candidate := wanted.with_name(f"{stem}-{number}")).exists():
        number += 1
    return candidate


def _take(source: Path, target: Path) -> None:
    """A process directory of a part in the merged run; only plain files come along."""
    make_directory(target)
    number = number_process(target.parent, target.name)
    for entry in sorted(source.iterdir()):
        plain = stat.S_ISREG(entry.lstat().st_mode)
        if plain and not entry.name.startswith(".") and not entry.name.endswith(".partial"):
            _link(entry, target / entry.name)
    with suppress(FormatError):  # a torn one stays as it is: readers say so
        process = read_process(source, number)
        own = msgspec.structs.replace(process, process=number, directory=target.name)
        write_json(target / PROCESS_FILE, own)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # another disk, or one without links
        shutil.copyfile(source, target, follow_symlinks=False)
        target.chmod(file_mode(target.parent))


def _run_file(parts: Sequence[Part]) -> RunFile:
    first = parts[0].file
    ids = tuple(sorted({name for part in parts for name in part.ids}))
    config = dict(first.config)
    if any(part.file.config.get("ranks") != config.get("ranks") for part in parts):
        config.pop("ranks", None)  # then every rank of the world is asked for
    return msgspec.structs.replace(
        first,
        run_id=hashlib.sha256("\n".join(ids).encode()).hexdigest()[:32],
        parts=ids,
        config=config,
        packages=dict(item for part in parts[::-1] for item in part.file.packages.items()),
        hidden_calls=sum(part.file.hidden_calls for part in parts),
        sealed=False,
        processes=(),
    )
