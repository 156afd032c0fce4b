# SPDX-License-Identifier: Apache-2.0
"""Columns of chosen rows of a table, texts as numbers, and rows that are alike in groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.run.hashes import distinct
from opscope.run.schema import TABLES
from opscope.run.vectors import Vectors, vectors

if TYPE_CHECKING:
    from opscope.arrays import Array, Bools, Ints
    from opscope.run.protocol import Run


class TextColumn(msgspec.Struct, frozen=True):
    """A column of texts: of each row the number of its text in words, which are in order, None the
    last of them.
    """

    numbers: Array
    words: tuple[Any, ...]

    def which(self, holds: Callable[[Any], bool]) -> Bools:
        """Of which rows something holds, asked once for each text."""
        return np.fromiter(map(holds, self.words), bool, len(self.words))[self.numbers]

    def at(self, rows: Ints) -> list[Any]:
        """The texts of some rows."""
        return [self.words[number] for number in self.numbers[rows].tolist()]

    def filled(self) -> TextColumn:
        """The same with an empty text for None."""
        words = sorted({word or "" for word in self.words})
        places = {word: place for place, word in enumerate(words)}
        numbers = np.array([places[word or ""] for word in self.words], np.int32)
        return TextColumn(numbers[self.numbers], tuple(words))


class Rows(msgspec.Struct, frozen=True):
    """Columns of some rows: numbers, masked where one of them is null, and texts, by name."""

    numbers: dict[str, Array]
    texts: dict[str, TextColumn]


class Coder:
    """A column of texts as numbers, a batch at a time."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._known: dict[int, int] = {}  # the number of a text by its hash
        self.words: list[str | None] = []  # the texts by number, as they were met

    def numbers(self, batch: Vectors, rows: Ints) -> Array:
        """Of each of these rows the number of its text."""
        hashes = batch.hashes(self._name)[rows]
        different = distinct(hashes)
        if not self._known.keys() >= set(different.tolist()):
            self._learn(batch, rows, hashes)
        places = np.array([self._known[each] for each in different.tolist()], np.int32)
        return places[np.searchsorted(different, hashes)]

    def _learn(self, batch: Vectors, rows: Ints, hashes: Array) -> None:
        cells = batch.cells(self._name)
        for each, first in zip(*np.unique(hashes, return_index=True), strict=True):
            if int(each) not in self._known:
                self._known[int(each)] = len(self.words)
                self.words.append(cells.text(int(rows[first])) if each else None)


def ordered(numbers: Array, words: Sequence[Any]) -> TextColumn:
    """A column with its words in order."""
    order = sorted(range(len(words)), key=lambda number: (words[number] is None, words[number]))
    places = np.empty(len(words), np.int32)
    places[order] = np.arange(len(words), dtype=np.int32)
    return TextColumn(places[numbers], tuple(words[number] for number in order))


class Groups:
    """Rows that are alike in all of some columns of numbers, in the order of these columns."""

    def __init__(self, *columns: Array) -> None:
        self._order = np.lexsort(columns[::-1])  # of rows that are alike the first stays the first
        begins = np.zeros(len(self._order), dtype=bool)
        begins[:1] = True
        for column in columns:
            ordered = column[self._order]
            begins[1:] |= ordered[1:] != ordered[:-1]
        self._starts = np.flatnonzero(begins)

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def first(self) -> Ints:
        """The first row of each group."""
        return self._order[self._starts]

    @property
    def sizes(self) -> Ints:
        """How many rows each group has."""
        return np.diff(self._starts, append=len(self._order))

    @property
    def numbers(self) -> Ints:
        """Of each row the number of its group."""
        numbers = np.empty(len(self._order), np.int64)
        numbers[self._order] = np.repeat(np.arange(len(self)), self.sizes)
        return numbers

    def members(self) -> Iterator[Ints]:
        """The rows of each group."""
        yield from np.split(self._order, self._starts[1:]) if len(self) else ()

    def merged(self, how: np.ufunc, values: Array) -> Array:
        """One value of each group: how, np.maximum say, of the values of its rows."""
        if not len(self):
            return values[:0]
        merged: Array = how.reduceat(values[self._order], self._starts)
        return merged

    def known(self, how: np.ufunc, values: Array, nothing: float) -> list[Any]:
        """The same of what is not null, None where all is; nothing: what changes no other value."""
        merged = self.merged(how, np.ma.filled(values, nothing)).tolist()
        there = self.merged(np.logical_or, ~np.ma.getmaskarray(values)).tolist()
        return [each if known else None for each, known in zip(merged, there, strict=True)]


def read(
    run: Run,
    table: str,
    names: Sequence[str],
    chosen: Callable[[Vectors], Bools] | None = None,
    calls: Ints | None = None,
) -> Rows:
    """These columns of all rows of a table, of those of some calls (sorted keys, each once), or of
    those of which something holds, which is asked of a batch.
    """
    coders = {name: Coder(name) for name in names if TABLES[table][name] == "string"}
    parts: dict[str, list[Array]] = {name: [] for name in names}
    for batch in vectors(run, table):
        rows = np.arange(len(batch)) if calls is None else batch.within(calls)
        if chosen is not None and len(rows):
            rows = rows[chosen(batch)[rows]]
        for name, part in parts.items():
            coder = coders.get(name)
            part.append(
                numbers_at(batch, name, rows) if coder is None else coder.numbers(batch, rows)
            )
    numbers = {name: joined(part) for name, part in parts.items()}
    texts = {name: ordered(numbers.pop(name), coder.words) for name, coder in coders.items()}
    return Rows(numbers, texts)


def numbers_at(batch: Vectors, name: str, rows: Ints) -> Array:
    """A column of numbers of some rows, masked where one of them is null."""
    known = batch.known(name)[rows]
    numbers = batch.numbers(name)[rows]
    return numbers if known.all() else np.ma.MaskedArray(numbers, mask=~known)


def joined(parts: Sequence[Array]) -> Array:
    """Parts of a column as one."""
    if not parts:
        return np.empty(0, np.int64)
    masked = any(isinstance(part, np.ma.MaskedArray) for part in parts)
    column: Array = (np.ma if masked else np).concatenate(parts)
    return column
