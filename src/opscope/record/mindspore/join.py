# SPDX-License-Identifier: Apache-2.0
"""Called in a process right after it imported MindSpore: switches MindSpore's own dump on, and
records PyNative.

MindSpore reads MINDSPORE_DUMP_CONFIG when it compiles its first graph, so the variable is in time
here. One that the user set is
honoured: what it names is dumped to where it says, and read from there when the program has ended.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.errors import UsageError
from opscope.formats.settings.mindspore import VARIABLE
from opscope.formats.settings.recording import recording_of
from opscope.operators.catalogue import declare_rows
from opscope.operators.declare import read_operators
from opscope.record.active import active
from opscope.record.config import RecordConfig, parse_options
from opscope.record.mindspore.place import (
    CHOICES,
    FOLDER,
    Facts,
    hand_declared,
    make_place,
    settings_document,
    write_facts,
    write_settings,
)
from opscope.record.mindspore.undumped import survive_dump
from opscope.record.rank import LOCAL_VARIABLES, WORLD_VARIABLES, first_number, known_rank
from opscope.record.seed import seed_all
from opscope.run.store.layout import process_facts, write_json

if TYPE_CHECKING:
    from opscope.record.mindspore.book import Book

TORCH_ONLY = ("check", "substitute", "journal", "sync")


def _nothing() -> None:
    """There is nothing to end."""


class Joined(msgspec.Struct, frozen=True):
    """This process's recording: its tables of PyNative where there are any, its dump where that is
    ours, what ends it.
    """

    book: Any = None
    owned: Path | None = None
    end: Callable[[], None] = _nothing


def join_from_environment() -> None:
    """Join the recording that OPSCOPE_RUN and OPSCOPE_RUN_ID name; nothing where they are
    missing.
    """
    run, identity = os.environ.get("OPSCOPE_RUN"), os.environ.get("OPSCOPE_RUN_ID")
    if run and identity:
        begin(parse_options(os.environ.get("OPSCOPE", "")), Path(run))
        active.joined = Path(run)


def begin(config: RecordConfig, run: Path) -> Joined:
    """Record this process into a run directory; not a rank that is left out."""
    rank = known_rank(os.environ) or 0
    if not config.selection.wants_rank(rank):
        return Joined()
    unheeded = [f"--{word}" for word in TORCH_ONLY if getattr(config, word)]
    if config.digest:
        unheeded.append("--levels digest")
    if unheeded:
        print(
            f"opscope: {', '.join(unheeded)}: for PyTorch only; MindSpore is recorded without",
            file=sys.stderr,
        )
    if config.operators is not None:
        declare_rows(read_operators(config.operators))
    if config.seed is not None:
        seed_all(config.seed, deterministic=config.deterministic)
    process = process_facts(
        rank=rank,
        local_rank=first_number(os.environ, LOCAL_VARIABLES),
        world=first_number(os.environ, WORLD_VARIABLES),
        keep_argv=config.keep_argv,
    )
    process_folder, dump = make_place(run, process)
    theirs = users_dump(os.environ, run)
    facts = Facts(process=process, dump=str(theirs or dump), owned=theirs is None)
    active.chosen.tell = lambda: write_json(process_folder / CHOICES, active.chosen.words())
    active.chosen.tell()
    hand_declared(process_folder)
    atexit.register(hand_declared, process_folder)
    book, end = record_pynative(run, config, process_folder, facts)
    last = config.selection.last_step if config.stop_after else None
    if theirs is None:
        os.environ[VARIABLE] = str(
            write_settings(process_folder, settings_document(dump, _steps(config, last)))
        )
        end = _both(_surviving(), end)
        if config.set_dump:
            end = _both(_following_set_dump(), end)
    write_facts(process_folder, facts)
    if last is not None and theirs is None:
        stop_after(
            dump, last, lambda: book is not None and book.compiled is not None and book.compiled.own
        )
    return Joined(book, dump if theirs is None else None, end)


def record_pynative(
    run: Path, config: RecordConfig, process_folder: Path, facts: Facts
) -> tuple[Book | None, Callable[[], None]]:
    """Record what runs outside of graphs, where MindSpore has the hook for it and opscope's own
    packages are installed.
    """
    try:
        from opscope.record.mindspore.book import Book
        from opscope.record.mindspore.compiled import CompiledParts
        from opscope.record.mindspore.pynative import optimizers, start, synchronize
        from opscope.record.mindspore.raised import teller
        from opscope.run.store.writer import ProcessWriter
    except ImportError as error:
        print(
            f"opscope: graphs only, PyNative is not recorded: {error}; install opscope into "
            "this interpreter",
            file=sys.stderr,
        )
        return None, _nothing

    def writer() -> ProcessWriter:
        return ProcessWriter(run, facts.process, keep=config.keep_last)

    book = Book(writer, config, live=optimizers, stop=stop_program, chosen=active.chosen)
    book.compiled = CompiledParts(process_folder, facts, synchronize)
    try:
        end = start(book, teller(process_folder, Path(facts.dump)))
    except ImportError:  # MindSpore before 2.10 has no dispatch mode
        return None, _nothing
    active.marks.append(book.mark_step)
    return book, end


def _surviving() -> Callable[[], None]:
    """Graphs that the dump of ours would make fail run without it."""
    try:
        return survive_dump()
    except ImportError:  # MindSpore before 2.10
        return _nothing


def _following_set_dump() -> Callable[[], None]:
    """What the program chooses with mindspore.set_dump, as dump_mode 2 of its own dump has it, is
    chosen here too.
    """
    original = getattr(sys.modules["mindspore"], "set_dump", None)
    if original is None:
        return _nothing

    @functools.wraps(original)
    def set_dump(target: Any, enabled: bool = True) -> None:  # noqa: FBT001, FBT002 - as MindSpore's own
        original(target, enabled)
        with contextlib.suppress(UsageError):
            active.chosen.choose(target, enabled=enabled)

    homes = [
        module
        for name in _SET_DUMP
        if getattr(module := sys.modules.get(name), "set_dump", None) is original
    ]
    for home in homes:
        setattr(home, "set_dump", set_dump)  # noqa: B010 - a module

    def back() -> None:
        for home in homes:
            setattr(home, "set_dump", original)  # noqa: B010 - a module

    return back


_SET_DUMP = ("mindspore", "mindspore.common", "mindspore.common.dump", "mindspore.tools")


def _both(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def call() -> None:
        first()
        second()

    return call


def _steps(config: RecordConfig, last: int | None) -> str | None:
    """The iterations MindSpore dumps; where the program is to end after the last, the one beyond it
    too, as the sign that it is over.
    """
    if config.selection.steps is None:
        return None
    wanted = str(config.words()["steps"])
    return wanted if last is None else f"{wanted}|{last + 1}"


def users_dump(environment: Mapping[str, str], run: Path) -> Path | None:
    """Where the dump goes that the user has switched on already; None when none is, or its settings
    ask for what CPU refuses.

    Statistics are such a thing: MindSpore would end the program, opscope works them out instead.
    Nor are those the user's that opscope wrote for the process that started this one (msrun,
    multiprocessing).
    """
    path = environment.get(VARIABLE)
    if not path or Path(path).is_relative_to((run / FOLDER).absolute()):
        return None
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        export = recording_of(document, environment).export
    except (OSError, ValueError, UsageError):
        return Path(path).parent  # MindSpore will say what is wrong with it
    return Path(export.path) if export.data == "tensor" else None


# Ends a MindSpore program, cleanly, once the last wanted step has been recorded.

POLL_SECONDS = 0.05


class _Failed(SystemExit):
    """SystemExit as the interpreter makes it from a class alone, with exit code 1."""

    def __init__(self) -> None:
        super().__init__(1)


def stop_program(code: int) -> None:
    """The main thread raises SystemExit at its next instruction; code is 0 or 1."""
    main = threading.main_thread().ident
    if main is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(main), ctypes.py_object(_Failed if code else SystemExit)
        )


def stop_after(dump: Path, last: int, unless: Callable[[], bool]) -> threading.Thread:
    """Watch the dump from a daemon thread; when iteration last + 1 begins to land, the program
    ends.

    So that iteration must be among those MindSpore dumps; the run leaves it out. The watch is over
    once `unless` says so: where the process counts steps itself it ends the program itself.
    """
    thread = threading.Thread(
        target=_watch, args=(dump, last, unless), name="opscope-stop", daemon=True
    )
    thread.start()
    return thread


def _watch(dump: Path, last: int, unless: Callable[[], bool]) -> None:
    while not any(path.is_dir() for path in dump.glob(f"rank_*/*/*/{last + 1}")):
        if unless():
            return
        time.sleep(POLL_SECONDS)
    if not unless():
        stop_program(0)
