# SPDX-License-Identifier: Apache-2.0
"""The operators.json of a recorded process: what is told of operators that its program calls."""

from __future__ import annotations

import threading
from pathlib import Path

from opscope.operators.catalogue import declared_row
from opscope.operators.rows import Row, checked_name, checked_row
from opscope.run.contain import tell
from opscope.run.store.operator_file import MOST, read_operators, write_operators


class OperatorsMet:
    """Written anew whenever there is something new to tell of an operator that was met; a program
    that is killed leaves what it had met.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._rows: dict[str, Row] = dict(read_operators([directory]).rows)
        self._lock = threading.RLock()  # operators of several threads are met at once
        self._failed = False

    def meet(self, op: str, row: Row) -> None:
        """Take down what is told of an operator; never raises for the disk."""
        if not row or self._failed:
            return
        with self._lock:
            if self._rows.get(op) == row or (op not in self._rows and len(self._rows) >= MOST):
                return
            self._rows[op] = row
            try:
                write_operators(self._directory, self._rows)
            except OSError as error:
                self._failed = True
                tell(f"what operators are is not recorded: {error.strerror or error}")


def told_row(op: str, known: Row) -> Row:
    """What a run has to tell of an operator: what is known of it, and what is declared."""
    try:
        checked_name(op)
        return checked_row({**known, **declared_row(op)})
    except ValueError:
        return {}  # a name, or more arguments, than the file may hold
