# SPDX-License-Identifier: Apache-2.0
"""The directory of a native run: its names, run.json and process.json, and how both are written.

    RUN/run.json
    RUN/processes/p-{host}-{pid}-{start in ms}/{process.json, calls.arrow, …}
    RUN/processes/number-{n}        names the process directory that claimed number n

The format as a whole is docs/store.md. JSON files are replaced in one step (written beside, then
renamed), so a reader sees the old one or the new one. Nothing here follows a path that was read
from a file.
"""

from __future__ import annotations

import os
import re
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from opscope.errors import FormatError, NewerFormatError, UsageError
from opscope.run.schema import SCHEMA_MAJOR, SCHEMA_MINOR, Process
from opscope.run.store.public import public_command, public_environment

RUN_FILE = "run.json"
PROCESS_FILE = "process.json"
PROCESSES = "processes"
BLACKBOX = "blackbox"
FORMULAS = "formulas"  # a second black box: gradient formulas written in Python, while they run
EXTREMES = "extremes.arrow"
STORE_MAJOR = 1
SEGMENTED = (
    "calls",
    "tensors",
)  # the tables that old steps leave; stacks and judgements stay whole

_MAX_JSON = 64 << 20
_MAX_NUMBER = 1 << 20
_PROCESS_NAME = re.compile(r"p-[A-Za-z0-9_.\-]{1,80}-[0-9]{1,10}-[0-9]{1,16}")
_SHARD_NAME = re.compile(r"values-[0-9]{5,9}\.safetensors")

Record = TypeVar("Record", bound=msgspec.Struct)


class RunFile(msgspec.Struct, frozen=True, kw_only=True):
    """What run.json holds. schema is [major, minor] of the tables, store the major version of the
    directory's layout.
    """

    format: str = "opscope"
    version: str = ""
    store: int = STORE_MAJOR
    schema: tuple[int, int] = (SCHEMA_MAJOR, SCHEMA_MINOR)
    run_id: str
    command: tuple[str, ...] = ()
    config: dict[str, Any] = {}
    packages: dict[str, str] = {}
    environment: dict[str, str] = {}
    seed: int | None = None
    deterministic: bool | None = None
    overhead: float | None = None
    hidden_calls: int = 0
    start: float | None = None
    sealed: bool = False
    parts: tuple[str, ...] = ()  # run_id of the recordings that a merged run was made of
    processes: tuple[Process, ...] = ()


class _Versions(msgspec.Struct, frozen=True):
    format: str = ""
    store: int = STORE_MAJOR
    schema: tuple[int, int] = (SCHEMA_MAJOR, SCHEMA_MINOR)
    version: str = ""


def create_run(
    path: str | os.PathLike[str],
    *,
    command: Sequence[str] = (),
    config: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    shared: bool = False,
    keep_argv: bool = False,
    **facts: Any,
) -> Path:
    """Make a new run directory and its run.json, and return it; a path that exists gets a sibling
    path-2, path-3, ….

    facts are further fields of RunFile (version, run_id, packages, seed, deterministic). What is
    not harmless by its kind is left out of the environment, and of the command without keep_argv.
    Only the owner may enter the directory, unless it is shared. UsageError when the directory
    cannot be made.
    """
    directory = _make_fresh(Path(os.path.abspath(path)), mode=0o777 if shared else 0o700)  # noqa: PTH100 - resolve() would follow links the user chose
    facts.setdefault("run_id", uuid.uuid4().hex)
    run = RunFile(
        command=recorded_command(command, keep=keep_argv),
        config=dict(config or {}),
        environment=public_environment(os.environ if environment is None else environment),
        start=time.time(),
        **facts,
    )
    try:
        write_json(directory / RUN_FILE, run)
    except OSError as error:
        raise UsageError(
            f"{directory}: cannot write the run: {error.strerror}; choose another place with -o"
        ) from error
    return directory


def _make_fresh(path: Path, *, mode: int) -> Path:
    if not path.name:
        raise UsageError(f"{path}: not a path for a run")
    number = 1
    while True:
        candidate = path if number == 1 else path.with_name(f"{path.name}-{number}")
        try:
            candidate.mkdir(mode, parents=True)
            make_directory(candidate / PROCESSES)
        except FileExistsError:
            number += 1
            continue
        except OSError as error:
            raise UsageError(
                f"{candidate}: cannot make the run directory: {error.strerror}; choose "
                "another with -o"
            ) from error
        return candidate


def seal_run(path: str | os.PathLike[str], **facts: Any) -> bool:
    """Complete run.json at the end: processes as their process.json say, and further facts
    (overhead, hidden_calls, …).

    False when that is not possible (run.json is gone, the disk is full): the run stays readable,
    and the program that was watched must not suffer. A process whose process.json is torn is left
    out; readers name it.
    """
    directory = Path(path)
    try:
        run = read_run_file(directory)
    except FormatError:
        return False
    readable = list(_readable_processes(directory))
    processes = tuple(
        msgspec.structs.replace(process, environment={}, packages={}) for process in readable
    )
    installed = next((process.packages for process in readable if process.packages), {})
    facts.setdefault("packages", {**run.packages, **installed})
    facts.setdefault(
        "overhead",
        max(
            (process.overhead for process in readable if process.overhead is not None), default=None
        ),
    )
    facts.setdefault("hidden_calls", sum(process.hidden_calls for process in readable))
    try:
        write_json(
            directory / RUN_FILE,
            msgspec.structs.replace(run, processes=processes, sealed=True, **facts),
        )
    except OSError:
        return False
    return True


def _readable_processes(directory: Path) -> Iterator[Process]:
    for number, entry in enumerate(process_directories(directory)):
        with suppress(FormatError):
            yield read_process(entry, number)


def read_run_file(directory: Path) -> RunFile:
    """run.json of a run directory; FormatError with one line when it is missing, torn or not
    ours.
    """
    path = directory / RUN_FILE
    versions = read_json(path, _Versions)
    if versions.format != "opscope":
        raise FormatError(path, "not the run.json of an opscope run")
    if versions.store > STORE_MAJOR or versions.schema[0] > SCHEMA_MAJOR:
        written = f"opscope {versions.version}" if versions.version else "a newer opscope"
        reason = (
            f"written by {written} (store {versions.store}, schema {versions.schema[0]}); "
            "upgrade opscope to read it"
        )
        raise NewerFormatError(path, reason)
    return read_json(path, RunFile)


def claim_process(directory: Path, facts: Process) -> Process:
    """Make the directory of a process and give it the lowest free number of the run; OSError when
    it cannot be made.
    """
    processes = directory / PROCESSES
    make_directory(processes, exist_ok=True)
    host = re.sub(r"[^A-Za-z0-9_.\-]", "_", facts.host or "")[:80] or "host"
    start = int((facts.start or time.time()) * 1000)
    while True:
        name = f"p-{host}-{facts.pid or os.getpid()}-{start}"
        try:
            make_directory(processes / name)
            break
        except FileExistsError:
            start += 1
    claimed = msgspec.structs.replace(
        facts, process=number_process(processes, name), directory=name
    )
    write_json(processes / name / PROCESS_FILE, claimed)
    return claimed


def number_process(processes: Path, name: str) -> int:
    """Claim the lowest free number of the run for the process directory of this name."""
    for number in range(_free_number(processes), _MAX_NUMBER):
        try:
            handle = os.open(
                processes / f"number-{number}",
                os.O_CREAT | os.O_EXCL | os.O_WRONLY,
                file_mode(processes),
            )
        except FileExistsError:
            continue
        try:
            os.write(handle, name.encode())
        finally:
            os.close(handle)
        return number
    raise UsageError(f"{processes}: more than {_MAX_NUMBER} processes")


def _free_number(processes: Path) -> int:
    """The lowest number nobody has claimed, found by halves: they are claimed in order."""
    taken, free = -1, 1
    while (processes / f"number-{free - 1}").exists():
        taken, free = free - 1, 2 * free
    free -= 1
    while free - taken > 1:
        middle = (taken + free) // 2
        if (processes / f"number-{middle}").exists():
            taken = middle
        else:
            free = middle
    return free


def process_facts(
    *,
    rank: int = 0,
    local_rank: int | None = None,
    world: int | None = None,
    keep_argv: bool = False,
) -> Process:
    """What this process says of itself; the writer gives it its number and directory."""
    import socket

    return Process(
        process=-1,
        directory="",
        host=socket.gethostname(),
        pid=os.getpid(),
        parent=os.getppid(),
        argv=recorded_command(sys.argv if hasattr(sys, "argv") else (), keep=keep_argv),
        rank=rank,
        local_rank=local_rank,
        world=world,
        start=time.time(),
        environment=public_environment(os.environ),
        packages=installed_packages(),
    )


def process_directories(directory: Path) -> list[Path]:
    """The process directories of a run, by number of claim, then name."""
    processes = directory / PROCESSES
    if not processes.is_dir():
        return []
    directories = [
        entry
        for entry in processes.iterdir()
        if _PROCESS_NAME.fullmatch(entry.name) and entry.is_dir()
    ]
    claims = {
        _claimed_by(entry): int(entry.name[7:])
        for entry in processes.glob("number-*")
        if entry.name[7:].isdigit()
    }
    return sorted(directories, key=lambda entry: (claims.get(entry.name, _MAX_NUMBER), entry.name))


def _claimed_by(claim: Path) -> str:
    try:
        with claim.open("rb") as file:
            return file.read(200).decode("utf-8", "replace")
    except OSError:
        return ""


def read_process(directory: Path, number: int) -> Process:
    """process.json with the directory's true name; number is what the process is called where the
    file has none.
    """
    process = read_json(directory / PROCESS_FILE, Process)
    if not (-1 <= process.process < 1 << 31 and -(1 << 31) <= process.rank < 1 << 31):
        raise FormatError(directory / PROCESS_FILE, "a process number or rank that is no int32")
    claimed = process.process if process.process >= 0 else number
    return msgspec.structs.replace(process, process=claimed, directory=directory.name)


def update_process(directory: Path, **facts: Any) -> None:
    """Replace facts of a process.json: exit_code, signal, rank, …; for the launcher, when a child
    died without closing.
    """
    write_json(
        directory / PROCESS_FILE, msgspec.structs.replace(read_process(directory, -1), **facts)
    )


def is_shard_name(name: str) -> bool:
    """Whether a name read from a row is that of a value shard, and so stays inside its
    directory.
    """
    return _SHARD_NAME.fullmatch(name) is not None


def segment_name(table: str, number: int) -> str:
    """File name of one segment of a table: calls.arrow, calls-00001.arrow, …"""
    return f"{table}.arrow" if number == 0 else f"{table}-{number:05d}.arrow"


def segment_files(directory: Path, table: str) -> list[Path]:
    """The segments of a table that are there, oldest first."""
    pattern = re.compile(rf"{table}(?:-([0-9]{{5,9}}))?\.arrow")
    numbered = [
        (int(match[1] or 0), entry)
        for entry in directory.iterdir()
        if (match := pattern.fullmatch(entry.name))
    ]
    return [entry for _, entry in sorted(numbered)]


def recorded_command(words: Sequence[str], *, keep: bool = False) -> tuple[str, ...]:
    """The words of a command line as a run holds them: whole where the user asked for that, else
    what is harmless of them.
    """
    return (
        tuple(word.encode("utf-8", "backslashreplace").decode() for word in words)
        if keep
        else public_command(words)
    )


def make_directory(path: Path, *, exist_ok: bool = False) -> None:
    """A directory of a run, open to nobody to whom the one above it is closed."""
    path.mkdir(0o700 if file_mode(path.parent) == 0o600 else 0o777, exist_ok=exist_ok)


def file_mode(directory: Path) -> int:
    """Mode for a new file of a run: 0o600 where only the owner may enter the directory, else what
    the umask leaves of 0o666. OSError when there is no such directory.
    """
    return 0o666 if directory.stat().st_mode & 0o077 else 0o600


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags, file_mode(Path(path).parent))


def write_json(path: Path, record: msgspec.Struct) -> None:
    """Write a record as JSON in one step; OSError when that fails, the old file then stays."""
    data = msgspec.json.format(msgspec.json.encode(record), indent=1)
    # its own, since a signal handler of the program may have another one written meanwhile
    beside = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    try:
        with open(beside, "wb", opener=_opener) as file:
            file.write(data)
        beside.replace(path)
    except OSError:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def read_json(path: Path, kind: type[Record]) -> Record:
    """Read a record; FormatError with one line when the file is missing, too large, torn or of
    another shape.
    """
    try:
        if path.stat().st_size > _MAX_JSON:
            raise FormatError(path, f"larger than {_MAX_JSON} bytes; not a file opscope wrote")
        data = path.read_bytes()
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror}") from error
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FormatError(path, f"torn or not as opscope writes it: {error}") from error


# Which versions of packages a Python process can import, by the names of their folders alone.

_METADATA = re.compile(
    r"([A-Za-z0-9][\w.-]*)-(\d[^-]*)\.(?:dist-info|egg-info)|([A-Za-z0-9][\w.]*)-(\d[^-]*)-py[\d.]+\.egg-info",
    re.ASCII,
)
_MOST = 5000  # packages that are told, of however many there are


def installed_packages(path: Sequence[str] | None = None) -> dict[str, str]:
    """Version by name (lower case, with underscores) of what lies on this path (sys.path), the
    first of a name as in imports.
    """
    versions: dict[str, str] = {}
    for folder in sys.path if path is None else path:
        with suppress(OSError):
            for entry in sorted(os.listdir(folder or ".")):  # noqa: PTH208 - made at the start of every process: no object per entry
                told = _METADATA.fullmatch(entry)
                if told is not None and len(versions) < _MOST:
                    name, version = (told[1], told[2]) if told[1] else (told[3], told[4])
                    versions.setdefault(name.lower().replace("-", "_").replace(".", "_"), version)
    return versions
