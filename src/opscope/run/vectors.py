# SPDX-License-Identifier: Apache-2.0
"""Tables a batch at a time as vectors: numbers as they lie in the files, texts and lists as hashes.

Nothing here makes a Python object for a row, so it is what a question about every row of a run is
asked with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from opscope.run.arrow import column_array, valid_rows
from opscope.run.hashes import distinct, equal_to, hash_of, hashes, ragged
from opscope.run.keys import among, keys_of
from opscope.run.query import arrow_columns, release

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from opscope.arrays import Array, Bools, Ints, Words
    from opscope.run.arrow import Column
    from opscope.run.hashes import Ragged
    from opscope.run.protocol import Run

_MAPPED = 1 << 18  # rows of a table's files that may lie in memory at once, about


class Vectors:
    """Rows of a table that stand together, column by column."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self._columns = columns
        self._cells: dict[str, Ragged] = {}
        self._hashes: dict[str, Words] = {}

    def __len__(self) -> int:
        return self._columns["process"].length

    @property
    def keys(self) -> Ints:
        """The number of each row's call."""
        return keys_of(self.numbers("process"), self.numbers("index"))

    def numbers(self, name: str) -> Array:
        """A column of numbers; what stands where it is null means nothing."""
        column = self._columns[name]
        return column.buffers[0][column.offset : column.offset + column.length]

    def true(self, name: str) -> Bools:
        """Where a column of bool is true."""
        column = column_array(self._columns[name])
        true: Bools = np.ma.getdata(column) & ~np.ma.getmaskarray(column)
        return true

    def known(self, name: str) -> Bools:
        """Where a column is not null."""
        valid = valid_rows(self._columns[name])
        return np.ones(len(self), dtype=bool) if valid is None else valid

    def cells(self, name: str) -> Ragged:
        """A column of text or lists."""
        if name not in self._cells:
            self._cells[name] = ragged([self._columns[name]])
        return self._cells[name]

    def hashes(self, name: str) -> Words:
        """The same as one hash a row, 0 for null."""
        if name not in self._hashes:
            self._hashes[name] = hashes(self.cells(name))
        return self._hashes[name]

    def are(self, name: str, text: str) -> Bools:
        """Where a column of text is this one, which is not empty."""
        return equal_to(self.cells(name), text)

    def within(self, calls: Ints) -> Ints:
        """The rows of these calls (sorted keys, each once)."""
        return np.flatnonzero(among(calls, self.keys))


class Texts:
    """The texts behind hashes, each made once."""

    def __init__(self) -> None:
        self.of: dict[int, str] = {0: ""}

    def learn(self, batch: Vectors, name: str, rows: Ints | None = None) -> Words:
        """The hashes of a column of text, of some rows or all, which are known from here on."""
        rows = np.arange(len(batch)) if rows is None else rows
        codes = batch.hashes(name)[rows]
        for code in distinct(codes).tolist():
            if code not in self.of:
                first = np.flatnonzero(codes == np.uint64(code))[0]
                self.of[code] = batch.cells(name).text(int(rows[first]))
        return codes

    def told(self, codes: Words, what: Callable[[str], Any], kind: Any) -> Array:
        """What is to be said of each text, asked once for each."""
        names = distinct(codes)
        each = [what(self.of[code]) for code in names.tolist()]
        return np.array(each, dtype=kind)[np.searchsorted(names, codes)]


def vectors(run: Run, table: str) -> Iterator[Vectors]:
    """All rows of a table, a batch at a time."""
    rows = 0
    for columns in arrow_columns(run, table):
        batch = Vectors(columns)
        yield batch
        rows += len(batch)
        if rows > _MAPPED:
            release(run, table)
            rows = 0
    release(run, table)


def codes_of(texts: Collection[str]) -> Words:
    """The hashes of texts."""
    return np.fromiter(map(hash_of, texts), np.uint64, len(texts))


def calls_where(run: Run, table: str, chosen: Callable[[Vectors], Bools]) -> Ints:
    """Keys of the calls, sorted, each once, of whose rows something holds; asked of a batch of
    them.
    """
    parts = [distinct(batch.keys[chosen(batch)]) for batch in vectors(run, table)]
    return distinct(np.concatenate([np.empty(0, np.int64), *parts]))


def calls_of(run: Run, meant: Callable[[str], bool]) -> Ints:
    """Keys of the calls of the operators that are meant, sorted; asked once for each operator."""
    texts = Texts()
    return calls_where(
        run, "calls", lambda batch: texts.told(texts.learn(batch, "op"), meant, bool)
    )


def begins_of(*columns: Array) -> Ints:
    """Where each stretch of equal rows begins, of columns of one length."""
    new = np.ones(len(columns[0]), dtype=bool)
    new[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return np.flatnonzero(new)


def stretches(values: Array, begins: Ints) -> list[Array]:
    """The values of each of these stretches."""
    return np.split(values, begins[1:]) if len(begins) else []


def differ(values: Array, begins: Ints) -> Bools:
    """In which of these stretches values are not all the same."""
    unlike: Bools = np.minimum.reduceat(values, begins) != np.maximum.reduceat(values, begins)
    return unlike
