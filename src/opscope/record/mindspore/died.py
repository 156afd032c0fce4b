# SPDX-License-Identifier: Apache-2.0
"""A process that a signal ended inside a compiled graph: the launcher tells which kernel it was, as
a process does of one that raised.

MindSpore dumps a kernel after it ran, so it is one that has no files though all it reads was made.
Kernels of a graph run side by
side: where several had begun, all are told and none is accused.
"""

from __future__ import annotations

import signal
from collections.abc import Collection
from pathlib import Path

from opscope.errors import OpscopeError
from opscope.formats.mindspore.failed import Failed
from opscope.formats.mindspore.reader import open_dump
from opscope.record.mindspore.compiled import began, folders_of
from opscope.record.mindspore.place import RAISED
from opscope.record.mindspore.raised import FACTS, Raised
from opscope.run.query import calls as calls_of
from opscope.run.store.layout import write_json
from opscope.run.store.process_reader import UNFINISHED

FAULTS = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT})
MOST_CANDIDATES = 8


def tell_died(process_folder: Path, dump: Path, number: int, taken: Collection[Path]) -> None:
    """Tell what is needed to write the row of the kernel in which a process died of this signal;
    nothing where there is none.

    taken are folders that are in the run already. A signal that somebody sends ends a program
    anywhere: only faults count.
    """
    last = max(
        (folder for folder in folders_of(dump) if folder not in taken), key=began, default=None
    )
    if last is None or number not in FAULTS or (process_folder / RAISED).exists():
        return
    try:
        meant = [
            call
            for call in calls_of(open_dump(last, failed=Failed(UNFINISHED, died=True)))
            if call.error is not None
        ]
    except (OpscopeError, OSError):  # taking the folder into the run says what is wrong with it
        return
    if not meant:
        return
    if len(meant) == 1:
        told = Raised(folder=str(last), error=UNFINISHED, kernel=meant[0].name)
    else:
        text = f"the process died of signal {number} in a compiled graph"
        candidates = tuple(
            f"{call.op} ({call.source or call.name})" for call in meant[:MOST_CANDIDATES]
        )
        told = Raised(folder=str(last), error=text, kernel=None, candidates=candidates)
    (process_folder / RAISED).mkdir()
    write_json(process_folder / RAISED / FACTS, told)
