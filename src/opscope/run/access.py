# SPDX-License-Identifier: Apache-2.0
"""The shorter ways that a run has to its rows, beside its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opscope.arrays import Array, Ints
    from opscope.run.arrow import Column
    from opscope.run.schema import Call, Tensor
    from opscope.run.selection import Selection

    Arrays = Mapping[str, Array]

TensorRow = tuple[int, int, str, str]  # process, index, io, slot


@dataclass(frozen=True, kw_only=True)
class Access:
    """Ways to the rows of a run; one that is None is done without, by way of its tables.

    rows: the records of a table, in memory; calls: those that are meant, in order; tensors_of:
    tensor rows of a call, by process and index; columns, arrow_columns, release, records_at: as in
    run.query; blackbox: the recent calls of a process (store.blackbox.BlackBoxContents); operators:
    what the programs told of operators (store.operator_file.OperatorTable); norms, hashes: L1 norms
    and hashes that another tool kept of tensors in place of ours.
    """

    rows: Callable[[str], Sequence[Any]] | None = None
    calls: Callable[[Selection], Iterator[Call]] | None = None
    tensors_of: Callable[[int, int], Sequence[Tensor]] | None = None
    columns: Callable[[str, Sequence[str], Ints | None], Iterator[Arrays]] | None = None
    arrow_columns: Callable[[str], Iterator[Mapping[str, Column]]] | None = None
    release: Callable[[str], None] | None = None
    records_at: Callable[[str, Sequence[int]], list[Any]] | None = None
    blackbox: Callable[[int], Any] | None = None
    operators: Callable[[], Any] | None = None
    norms: Mapping[TensorRow, float] = field(default_factory=dict)
    hashes: Mapping[TensorRow, str] = field(default_factory=dict)


TABLES_ALONE = Access()


def access_of(run: object) -> Access:
    """The ways that a run has; a reader of another package may have none."""
    access: Access = getattr(run, "access", TABLES_ALONE)
    return access
