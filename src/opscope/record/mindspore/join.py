# SPDX-License-Identifier: Apache-2.0
"""Called in a process below `opscope run` right after it imported MindSpore: switches MindSpore's own dump on.

MindSpore reads MINDSPORE_DUMP_CONFIG when it compiles its first graph, so the variable is in time here. One that the user set is
honoured: what it names is dumped to where it says, and read from there when the program has ended. Nothing of MindSpore is
imported or patched, so the program computes what it computes without opscope.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from opscope.errors import UsageError
from opscope.formats.settings.recording import recording_of
from opscope.record.config import RecordConfig, parse_options
from opscope.record.mindspore.place import Facts, make_place, settings_document, write_facts, write_settings
from opscope.record.mindspore.stop import stop_after
from opscope.record.rank import LOCAL_VARIABLES, WORLD_VARIABLES, first_number, known_rank
from opscope.record.seed import seed_all
from opscope.run.schema import Process
from opscope.run.store.layout import process_facts

VARIABLE = "MINDSPORE_DUMP_CONFIG"


def join_from_environment() -> None:
    """Switch the dump on and tell the launcher where it will lie; nothing outside `opscope run`, or for a rank left out."""
    run, identity = os.environ.get("OPSCOPE_RUN"), os.environ.get("OPSCOPE_RUN_ID")
    if not run or not identity:
        return
    config = parse_options(os.environ.get("OPSCOPE", ""))
    rank = known_rank(os.environ) or 0
    if not config.selection.wants_rank(rank):
        return
    if config.seed is not None:
        seed_all(config.seed, deterministic=config.deterministic)
    process = process_facts(
        rank=rank, local_rank=first_number(os.environ, LOCAL_VARIABLES), world=first_number(os.environ, WORLD_VARIABLES)
    )
    record_pynative(Path(run), process, config)
    place, dump = make_place(Path(run), process)
    theirs = users_dump(os.environ)
    if theirs is not None:
        write_facts(place, Facts(process=process, dump=str(theirs), owned=False))
        return
    last = config.selection.last_step if config.stop_after else None
    os.environ[VARIABLE] = str(write_settings(place, settings_document(dump, _steps(config, last))))
    write_facts(place, Facts(process=process, dump=str(dump)))
    if last is not None:
        stop_after(dump, last)


def record_pynative(run: Path, process: Process, config: RecordConfig) -> None:
    """Record what runs outside of graphs, where MindSpore has the hook for it and opscope's own packages are installed."""
    try:
        from opscope.record.mindspore.pynative import Book, start
        from opscope.run.store.writer import ProcessWriter
    except ImportError as error:
        print(f"opscope: graphs only, PyNative is not recorded: {error}; install opscope into this interpreter", file=sys.stderr)
        return
    with contextlib.suppress(ImportError):  # MindSpore before 2.10 has no dispatch mode
        start(Book(lambda: ProcessWriter(run, process, keep=config.keep_last), config))


def _steps(config: RecordConfig, last: int | None) -> str | None:
    """The iterations MindSpore dumps; where the program is to end after the last, the one beyond it too, as the sign that it is over."""
    if config.selection.steps is None:
        return None
    wanted = str(config.words()["steps"])
    return wanted if last is None else f"{wanted}|{last + 1}"


def users_dump(environment: Mapping[str, str]) -> Path | None:
    """Where the dump goes that the user has switched on already; None when none is, or its settings ask for what CPU refuses.

    Statistics are such a thing: MindSpore would end the program, opscope works them out instead.
    """
    path = environment.get(VARIABLE)
    if not path:
        return None
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        export = recording_of(document, environment).export
    except (OSError, ValueError, UsageError):
        return Path(path).parent  # MindSpore will say what is wrong with it
    return Path(export.path) if export.data == "tensor" else None
