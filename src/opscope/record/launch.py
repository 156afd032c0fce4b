# SPDX-License-Identifier: Apache-2.0
"""Runs a command with recording switched on in every Python process below it.

The launcher makes the run directory, gives the command an environment in which record/bootstrap
starts a recording wherever torch is imported, waits, and seals the run. Standard streams are the
command's own. The environment:

    PYTHONPATH         record/bootstrap in front of what was there
    OPSCOPE            the options, as RecordConfig.to_options writes them
    OPSCOPE_RUN        absolute path of the run directory;  OPSCOPE_RUN_ID  what a process must know to join it
    OPSCOPE_HOME       the directory that holds this opscope, for interpreters that have none;  OPSCOPE_VERSION  its version
"""  # noqa: E501

from __future__ import annotations

import contextlib
import os
import platform
import re
import shlex
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.errors import FormatError, OpscopeError, UsageError
from opscope.record.ascend import collection, has_logs
from opscope.record.mindspore.place import FOLDER as MINDSPORE
from opscope.record.mindspore.watch import watching
from opscope.record.shipping import shipper
from opscope.record.supervise import Ending, supervise
from opscope.run.descriptor import identity
from opscope.run.place import with_own_name
from opscope.run.printable import printable
from opscope.run.remote import is_url
from opscope.run.store.layout import (
    BLACKBOX,
    RUN_FILE,
    create_run,
    process_directories,
    read_process,
    seal_run,
    update_process,
)
from opscope.version import VERSION

if TYPE_CHECKING:
    from opscope.record.config import RecordConfig

BOOTSTRAP = Path(__file__).parent / "bootstrap"
STARTED = "started"
GONE = "nothing can be read: {} was removed or replaced while the command ran"
NO_GRAPH = "nothing recorded: MindSpore was imported, and ended before it had run a graph"
_MAX_NOTE = 4096
_PACKAGES = ("torch", "torch_npu", "mindspore", "numpy", "transformers")
Say = Callable[[str], None]
Beside = Callable[[Path], AbstractContextManager[object]]


class LaunchResult(msgspec.Struct, frozen=True, kw_only=True):
    """How the command ended and what was recorded of it.

    run is None when there is none to read (it could not be made, or an outer `opscope run` has it);
    exit_code is the command's, 128 + n when signal n ended it; nothing_recorded says why, when no
    process recorded.
    """

    run: Path | None
    exit_code: int
    seconds: float
    processes: int = 0
    nothing_recorded: str | None = None
    notes: tuple[str, ...] = ()


def say(line: str) -> None:
    """One line on stderr; stdout belongs to the command."""
    print(f"opscope: {printable(line)}", file=sys.stderr, flush=True)


def launch(
    config: RecordConfig,
    command: Sequence[str],
    *,
    tell: Say = say,
    beside: Beside = nullcontext,
) -> LaunchResult:
    """Run a command under recording and wait for it; UsageError when there is no such command.
    beside is entered while it runs, with the run.

    Inside an outer `opscope run` the command joins its recording. A run directory that cannot be
    made is told, and the command runs without recording.
    """
    check_command(command)
    start = time.monotonic()
    if is_joined(os.environ):
        tell(f"joins the recording in {os.environ['OPSCOPE_RUN']}; its options hold")
        run, environment = None, dict(os.environ)
    else:
        run, environment = _prepare(config, command, tell)
    made = directory_identity(run)
    url = _url(config)
    ship = shipper(run, url, tell) if run is not None and url is not None else None
    with (
        watching(run, config) if run is not None else nullcontext() as dumps,
        ship or nullcontext(),
        beside(run) if run is not None else nullcontext(),
    ):
        ending = supervise(command, environment)
        if dumps is not None and ending.signal is not None:
            dumps.died(ending.pid, ending.signal)
    for said in dumps.notes if dumps is not None else ():
        tell(said)
    result = LaunchResult(run=run, exit_code=ending.code, seconds=time.monotonic() - start)
    if run is None:
        return result
    if directory_identity(run) != made or not (run / RUN_FILE).exists():
        return msgspec.structs.replace(result, nothing_recorded=GONE.format(run))
    try:
        result = _finish(result, run, command, ending)
    except (OpscopeError, OSError) as error:
        tell(f"{run}: not sealed: {error}")
    if ship is not None:
        ship.finish()
    return result


def directory_identity(run: Path | None) -> tuple[int, int] | None:
    """What tells a directory from another one in its place; None where there is none."""
    with contextlib.suppress(OSError):
        return None if run is None else identity(run.stat())
    return None


def _prepare(
    config: RecordConfig, command: Sequence[str], tell: Say
) -> tuple[Path | None, dict[str, str]]:
    run_id = uuid.uuid4().hex
    url = _url(config)
    local = config.output if url is None else Path("runs") / url.rstrip("/").rpartition("/")[2]
    wanted = Path(local or default_path(config, command))
    facts: dict[str, Any] = {
        "run_id": run_id,
        "version": VERSION,
        "seed": config.seed,
        "deterministic": config.deterministic,
    }
    try:
        facts |= {
            "packages": packages(command),
            "shared": config.shared,
            "keep_argv": config.keep_argv,
        }
        wanted = with_own_name(wanted)
        run = create_run(wanted, command=command, config=config.words(), **facts)
    except UsageError as error:
        tell(f"not recording: {error}; the command runs without it")
        return None, dict(os.environ)
    # The path as the user wrote it is the one to read and to copy.
    shown = wanted.with_name(run.name)
    tell(
        f"{wanted} exists, recording into {shown}"
        if run.name != wanted.name
        else f"recording into {shown}"
    )
    child = child_environment(os.environ, config, run, run_id)
    return shown, {**child, **collection(os.environ, run)}


def _url(config: RecordConfig) -> str | None:
    """Where the run is shipped to, if it is."""
    return config.output if config.output is not None and is_url(config.output) else None


def check_command(command: Sequence[str], *, verb: str = "run") -> None:
    """UsageError, with what to type instead, when the first word cannot be run."""
    if not command:
        raise UsageError(f"no command given; write: opscope {verb} [options] -- python train.py")
    if shutil.which(command[0]) is not None:
        return
    if command[0].endswith(".py") and Path(command[0]).exists():
        raise UsageError(
            f"{command[0]} is not a program; write: opscope {verb} -- python {shlex.join(command)}"
        )
    if Path(command[0]).is_file():
        raise UsageError(
            f"{command[0]}: may not be run; chmod +x it, or name the program that runs it before it"
        )
    raise UsageError(f"{command[0]}: no such command; what follows -- is run as it stands")


def is_joined(environment: Mapping[str, str]) -> bool:
    """Whether an outer recording is there to be joined."""
    run = environment.get("OPSCOPE_RUN", "")
    return bool(environment.get("OPSCOPE_RUN_ID")) and Path(run).is_dir()


def default_path(config: RecordConfig, command: Sequence[str]) -> Path:
    """runs/{tag or name of the script}-{local time}."""
    name = config.tag or script_name(command)
    name = re.sub(r"[/\\\x00-\x1f]+", "-", name).strip(".- ") or "run"
    return Path("runs") / f"{name[:80]}-{time.strftime('%Y%m%d-%H%M%S')}"


def script_name(command: Sequence[str]) -> str:
    """What a user would call the command: its first .py file, else the module after -m, else its
    first word.
    """
    script = next((word for word in command if word.endswith(".py")), None)
    if script is None and "-m" in command[1:-1]:
        return command[command.index("-m", 1) + 1]
    return Path(script or command[0]).name.removesuffix(".py")


def packages(command: Sequence[str]) -> dict[str, str]:
    """Versions of what matters to numbers; empty when the command uses another interpreter's
    packages than this one.
    """
    program = shutil.which(command[0])
    if program is None or Path(program).parent != Path(sys.executable).parent:
        return {}
    from importlib.metadata import PackageNotFoundError, version

    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def child_environment(
    environment: Mapping[str, str], config: RecordConfig, run: Path, identity: str
) -> dict[str, str]:
    """The environment in which every Python process below records into run (absolute)."""
    path = environment.get("PYTHONPATH", "")
    package = Path(__file__).parents[1]
    child = {
        **environment,
        "PYTHONPATH": f"{BOOTSTRAP}{os.pathsep}{path}" if path else str(BOOTSTRAP),
        "OPSCOPE": config.to_options(),
        "OPSCOPE_RUN": str(run),
        "OPSCOPE_RUN_ID": identity,
        "OPSCOPE_HOME": str(package.parent),
        "OPSCOPE_VERSION": VERSION,
    }
    if config.seed is not None:
        child.setdefault("PYTHONHASHSEED", str(config.seed))
    if config.sync:
        child.update(CUDA_LAUNCH_BLOCKING="1", ASCEND_LAUNCH_BLOCKING="1")
    if config.deterministic:
        child.setdefault(
            "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
        )  # what torch.use_deterministic_algorithms asks of CUDA users
    return child


def _finish(
    result: LaunchResult, run: Path, command: Sequence[str], ending: Ending
) -> LaunchResult:
    """Say in the run how the command ended, and find out what it recorded."""
    started = run / STARTED
    was_started = started.exists()
    started.unlink(missing_ok=True)
    notes = read_notes(run)
    directories = process_directories(run)
    for directory in directories:
        _note_ending(directory, ending)
    seal_run(run)
    without_graph = (run / MINDSPORE).is_dir()
    why = (
        None
        if directories
        else NO_GRAPH
        if without_graph
        else why_nothing(command, started=was_started, notes=notes)
    )
    if ending.code and has_logs(run):
        notes = (
            *notes,
            (
                "CANN's logs are in the run; an AI Core error is explained by: opscope aicore "
                f"{shlex.quote(str(run))}"
            ),
        )
    return msgspec.structs.replace(
        result, processes=len(directories), notes=notes, nothing_recorded=why
    )


def _note_ending(directory: Path, ending: Ending) -> None:
    """A process that was killed could not write how it ended; of the command itself the launcher
    knows.
    """
    try:
        process = read_process(directory, -1)
        if process.pid == ending.pid and process.exit_code is None and process.signal is None:
            update_process(
                directory,
                exit_code=ending.code,
                signal=ending.signal,
                idle=_idle(directory) if ending.signal else None,
            )
    except (FormatError, OSError):
        return  # torn by what killed the process: readers say so


def _idle(directory: Path) -> float:
    """Seconds since the tables of a process last grew: its writer flushes every second while calls
    are made.
    """
    times = [
        path.stat().st_mtime
        for path in (*directory.glob("*.arrow"), directory / BLACKBOX)
        if path.exists()
    ]
    return round(max(0.0, time.time() - max(times)), 1) if times else 0.0


def read_notes(run: Path) -> tuple[str, ...]:
    """What processes that could not record said about it, each once."""
    lines: dict[str, None] = {}
    for path in sorted(run.glob("note-*.txt")):
        with path.open("r", encoding="utf-8", errors="replace") as file:
            lines.update(dict.fromkeys(file.read(_MAX_NOTE).splitlines()))
    return tuple(line.removeprefix("opscope: ") for line in lines)


def why_nothing(command: Sequence[str], *, started: bool, notes: Sequence[str]) -> str:
    """One line on why no process recorded."""
    if notes:
        return f"nothing recorded: {notes[0].removeprefix('not recording: ')}"
    if started:
        return "nothing recorded: no process imported torch or mindspore"
    flag = isolating_flag(command)
    if flag is not None:
        way_out = f"leave {flag} out, or import opscope in the program"
        return (
            f"nothing recorded: python {flag} skips sitecustomize, by which opscope starts; "
            f"{way_out}"
        )
    return (
        "nothing recorded: no process imported torch or mindspore, and no Python process came "
        "up with PYTHONPATH as opscope set it:"
        f" {Path(command[0]).name} is no Python program, or clears the environment, or uses "
        "python -I, -E or -S"
    )


def isolating_flag(command: Sequence[str]) -> str | None:
    """The option of a Python interpreter in this command that keeps sitecustomize from being
    imported: -I, -E or -S.
    """
    for number, word in enumerate(command):
        if not re.fullmatch(r"(python|pypy)[0-9.]*", Path(word).name):
            continue
        for option in command[number + 1 :]:
            if not re.fullmatch(r"-[A-Za-z]+", option) or option in ("-c", "-m"):
                break
            if letter := re.search(r"[IES]", option):
                return f"-{letter[0]}"
    return None
