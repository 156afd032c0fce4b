# SPDX-License-Identifier: Apache-2.0
"""Operators that the program calls and the shipped catalogue does not know: what their schemas and
declarations tell goes with the run, so that it is judged alike where they are not installed.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opscope.kernels.calls import Operator
from opscope.operators.catalogue import declared_row, is_shipped, traits_of
from opscope.operators.rows import Row, checked_name, checked_row
from opscope.operators.spelling import OWN, namespace
from opscope.operators.traits import Traits
from opscope.record.torch.operator_facts import derived_row
from opscope.run.contain import tell
from opscope.run.store.operator_file import MOST, write_operators


class OperatorsMet:
    """The operators.json of this process, written anew when an operator that belongs there is met
    for the first time; a program that is killed leaves what it had met.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._rows: dict[str, Row] = {}
        self._lock = threading.RLock()  # operators of several threads are met at once
        self._failed = False

    def meet(self, func: Any, operator: Operator) -> None:
        """Take down what the catalogue does not know of an operator; never raises for the disk."""
        row = row_of(func, operator.op)
        if not row or self._failed:
            return
        with self._lock:
            if operator.op in self._rows or len(self._rows) >= MOST:
                return
            self._rows[operator.op] = row
            try:
                write_operators(self._directory, self._rows)
            except OSError as error:
                self._failed = True
                tell(f"what operators are is not recorded: {error.strerror or error}")


def row_of(func: Any, op: str) -> Row:
    """What a run has to tell of an operator; nothing of one that the catalogue knows."""
    derived: Mapping[str, bool | str] = {}
    if hasattr(func, "_schema"):
        derived = _news(op, derived_row(func))
    try:
        checked_name(op)
        return checked_row({**derived, **declared_row(op)})
    except ValueError:
        return {}  # a name, or more arguments, than the file may hold


def _news(op: str, row: Row) -> Row:
    """What the shipped data leave open: all of an operator of somebody's library; of torch's own
    what is harmless, where no sheet has it.
    """
    known = traits_of(op)
    if namespace(op) in OWN:
        return {"pointwise": True} if row.get("pointwise") and known == Traits() else {}
    if not is_shipped(op):
        return row
    return {
        trait: held
        for trait, held in row.items()
        if trait not in ("writes", "pointwise") and getattr(known, trait) != held
    }
