# SPDX-License-Identifier: Apache-2.0
"""Tables whole, column by column, as numbers and hashes of texts: what a comparison of millions of
rows can afford. Nothing here makes an object for a row.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from opscope.run.arrow import sliced
from opscope.run.hashes import Cells, cells, folded, hashes, known_rows
from opscope.run.query import arrow_columns, release

if TYPE_CHECKING:
    from opscope.arrays import Array, Bools, Words
    from opscope.run.protocol import Run

_TEXT = 32  # bytes of a row of text, about
_MAPPED = 24 << 20  # bytes of a table's files that may lie in memory at once, about


def read_tables(run: Run) -> tuple[WholeTable, WholeTable]:
    """Calls and tensors of a run as batches: small steps of Python, which two threads only keep
    each other from.

    Raises FormatError for a table that cannot be read.
    """
    return WholeTable(run, "calls"), WholeTable(run, "tensors")


class WholeTable:
    """One table, column by column; the batches are views of the run's files."""

    def __init__(self, run: Run, table: str) -> None:
        self._batches = list(arrow_columns(run, table))
        self.count = sum(batch["index"].length for batch in self._batches)
        self.release, self._touched = partial(release, run, table), 0
        self.release()

    def numbers(self, name: str, kind: Any, missing: Any) -> Array:
        """A column of numbers, missing where it is null."""
        self._touch(np.dtype(kind).itemsize)
        columns = [batch[name] for batch in self._batches]
        if all(
            column.validity is not None and not np.count_nonzero(column.validity)
            for column in columns
        ):
            return np.broadcast_to(
                np.array(missing, dtype=kind), self.count
            )  # no number at all takes no memory
        parts = [
            column.buffers[0][column.offset : column.offset + column.length] for column in columns
        ]
        numbers = np.concatenate([np.empty(0, kind), *parts], dtype=kind)
        valid = known_rows(columns)
        if valid is not None:
            np.copyto(numbers, missing, where=~valid)
        return folded(numbers)

    def _touch(self, width: int) -> None:
        """A column of so many bytes a row is about to be read: memory that others lie mapped in is
        given back before it grows.
        """
        self._touched += width * self.count
        if self._touched > _MAPPED:
            self.release()
            self._touched = 0

    def cells(self, name: str) -> Cells:
        """A column of text or lists."""
        self._touch(_TEXT)
        return cells([batch[name] for batch in self._batches])

    def hashes(self, name: str, *, null: int = 0) -> Words:
        """The same as one hash a row; that of a null is given."""
        texts = self.cells(name)
        return texts.each(hashes(texts.different, null=null))

    def known(self, name: str) -> Bools:
        """Where a column is not null."""
        return _filled(known_rows([batch[name] for batch in self._batches]), self.count)

    def placed(self, name: str) -> Bools:
        """Where a value has a place: the struct and its first field are there."""
        columns = [batch[name] for batch in self._batches]
        shards = [sliced(column.children[0], column.offset, column.length) for column in columns]
        return _filled(known_rows(columns), self.count) & _filled(known_rows(shards), self.count)


def _filled(valid: Bools | None, count: int) -> Bools:
    return np.ones(count, dtype=np.bool_) if valid is None else valid
