# SPDX-License-Identifier: Apache-2.0
"""What runs tell of operators that the catalogue does not know, while questions are asked of
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opscope.operators.catalogue import knowing
from opscope.operators.told import Rows
from opscope.run.access import access_of
from opscope.run.protocol import Run
from opscope.run.store.operator_file import NOTHING_TOLD, OperatorTable, overruled, together


def table_of(run: Run) -> OperatorTable:
    """What a run tells; nothing where it is of another tool."""
    ask = access_of(run).operators
    told: OperatorTable = NOTHING_TOLD if ask is None else ask()
    return told


@contextmanager
def knowing_of(*runs: Run, declared: Rows | None = None) -> Iterator[tuple[str, ...]]:
    """A block in which what these runs tell of operators counts; gives what is to be said of it."""
    table = together(map(table_of, runs))
    with knowing(declared=declared, recorded=table.rows):
        yield (*table.remarks, *overruled(table))
