# SPDX-License-Identifier: Apache-2.0
"""Columns of text and of lists as one 64-bit hash a row, by vector operations: equal cells have
equal hashes, in this process.

Nothing here makes a Python object for a row; a text is decoded only where somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.run.arrow import valid_rows

if TYPE_CHECKING:
    from opscope.arrays import Array, Bools, Bytes, Ints, Words
    from opscope.run.arrow import Column

ABSENT_LENGTH = -1
LONG = 256  # bytes of a text, items of a list; longer ones are hashed one by one
_REMEMBERED = 4  # batches of one size that a batch is held against
_BLOCK = (
    1 << 16
    # rows at a time: what is computed in between stays in the cache, and two threads seldom wait
    # for each other
)
_MULTIPLIERS = tuple(
    np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
_HALF = np.uint64(32)
_KEPT = np.array(
    [(1 << (8 * length)) - 1 for length in range(9)], dtype=np.uint64
)  # masks of the first bytes of a word


class Ragged(msgspec.Struct, frozen=True):
    """A column of texts (items are bytes, eight zeros behind the last) or of lists of int64; the
    length of a null is -1.
    """

    items: Array
    starts: Ints
    lengths: Ints

    def __len__(self) -> int:
        return len(self.starts)

    def text(self, row: int) -> str:
        """The text of a row, "" for null."""
        start = int(self.starts[row])
        return (
            self.items[start : start + max(int(self.lengths[row]), 0)]
            .tobytes()
            .decode("utf-8", "replace")
        )

    def texts(self, rows: Ints) -> list[str]:
        """The texts of rows."""
        starts = self.starts[rows].tolist()
        ends = (self.starts[rows] + np.maximum(self.lengths[rows], 0)).tolist()
        whole = self.items.tobytes()
        if whole.isascii():
            every = whole.decode("ascii")
            return [every[start:end] for start, end in zip(starts, ends, strict=True)]
        return [
            whole[start:end].decode("utf-8", "replace")
            for start, end in zip(starts, ends, strict=True)
        ]


class Cells(msgspec.Struct, frozen=True):
    """A column of text or lists: its batches that are not alike, one after the other, and which
    rows of those each batch is.

    Most steps of a program repeat each other word by word, so most batches need no look of their
    own.
    """

    different: Ragged
    batches: list[slice]

    def each(self, results: Array) -> Array:
        """What was found for the rows of different, for every row of the column."""
        unrepeated = sum(part.stop - part.start for part in self.batches) == len(self.different)
        return folded(
            results if unrepeated else np.concatenate([results[part] for part in self.batches])
        )


def folded(column: Array) -> Array:
    """The column, without memory of its own where one number stands in every row."""
    constant = len(column) > 1 and column[0] == column[-1] and bool((column == column[0]).all())
    return np.broadcast_to(column[:1].copy(), len(column)) if constant else column


def cells(columns: Sequence[Column]) -> Cells:
    """The batches of a column of text or list<int64>, those that repeat an earlier one found
    out.
    """
    unrepeated: list[Column] = []
    known: dict[int, list[tuple[tuple[bytes, ...], slice]]] = {}  # by the number of bytes
    batches = []
    count = 0
    for column in columns:
        content = _content(column)
        alike = known.setdefault(len(content[1]), [])
        rows = next((rows for other, rows in alike if other == content), None)
        if rows is None:
            rows = slice(count, count + column.length)
            count = rows.stop
            unrepeated.append(column)
            alike.insert(0, (content, rows))
            del alike[_REMEMBERED:]
        batches.append(rows)
    return Cells(ragged(unrepeated), batches)


def _content(column: Column) -> tuple[bytes, ...]:
    """All that a batch holds; batches of equal content are one copy and one comparison of
    memory.
    """
    ends = _ends(column)
    first, last = (int(ends[0]), int(ends[-1])) if column.length else (0, 0)
    valid = valid_rows(column)
    return (
        ends.tobytes(),
        _items(column)[first:last].tobytes(),
        b"" if valid is None else valid.tobytes(),
    )


def _ends(column: Column) -> Array:
    return column.buffers[0][column.offset : column.offset + column.length + 1]


def ragged(columns: Sequence[Column]) -> Ragged:
    """The batches of a column of text or list<int64>, one after the other."""
    filled = [column for column in columns if column.length]
    ends = [_ends(column) for column in filled]
    sizes = np.array([int(part[-1]) - int(part[0]) for part in ends], dtype=np.int64)
    shifts = np.cumsum(sizes) - sizes - np.array([int(part[0]) for part in ends], dtype=np.int64)
    nothing = np.empty(0, np.int64)
    starts = np.concatenate([nothing, *(part[:-1] for part in ends)])
    lengths = np.concatenate([nothing, *(part[1:] for part in ends)])
    lengths -= starts
    starts += np.repeat(shifts, [column.length for column in filled])
    valid = known_rows(filled)
    if valid is not None:
        np.copyto(lengths, ABSENT_LENGTH, where=~valid)
    items = [_items(column)[part[0] : part[-1]] for column, part in zip(filled, ends, strict=True)]
    is_text = not columns or columns[0].type == "string"
    return Ragged(
        np.concatenate([*items, np.zeros(8, np.uint8) if is_text else nothing]), starts, lengths
    )


def _items(column: Column) -> Array:
    child = column.children[0] if column.children else None
    return column.buffers[1] if child is None else child.buffers[0][child.offset :]


def known_rows(columns: Sequence[Column]) -> Bools | None:
    """Which rows of the batches of a column are not null; None when all are."""
    if all(column.validity is None for column in columns):
        return None
    parts = [(valid_rows(column), column.length) for column in columns]
    return np.concatenate(
        [np.ones(count, dtype=np.bool_) if valid is None else valid for valid, count in parts]
    )


def mixed(*columns: Words) -> Words:
    """One hash for each row of several columns; the order of columns matters (the finaliser of
    SplitMix64 ends it).
    """
    total = np.empty(len(columns[0]), dtype=np.uint64)
    for rows in _blocks(len(total)):
        part = total[rows]
        part[:] = _MULTIPLIERS[0]
        for column in columns:
            _absorb(part, column[rows])
        _finish(part)
    return total


def hashes(column: Ragged, *, null: int = 0) -> Words:
    """One hash for each cell of a column; that of a null is given."""
    total = np.empty(len(column), dtype=np.uint64)
    for rows in _blocks(len(total)):
        lengths = column.lengths[rows]
        least = int(lengths.min())
        if least < 0 > int(lengths.max()):
            total[rows] = np.uint64(null)
            continue
        _hash_block(column, rows, total[rows])
        if least < 0:
            np.copyto(total[rows], np.uint64(null), where=lengths < 0)
    return total


def _hash_block(column: Ragged, rows: slice, total: Words) -> None:
    starts, lengths = column.starts[rows], column.lengths[rows]
    most = int(lengths.max())
    is_text = column.items.dtype == np.uint8
    words, step = (_words(column.items), 8) if is_text else (column.items.view(np.uint64), 1)
    np.add(lengths, 1, out=total.view(np.int64))  # an empty cell is no null
    total *= _MULTIPLIERS[1]
    if int(lengths.min()) == most <= LONG:  # the cells lie one after the other, at even distances
        first, last = int(starts[0]), int(starts[-1]) + 1
        for offset in range(0, most, step):
            word = words[first + offset : last + offset : most]
            _absorb(total, word & _KEPT[min(most - offset, 8)] if is_text else word)
    else:
        for offset in range(0, min(most, LONG), step):
            chosen = np.flatnonzero((lengths > offset) & (lengths <= LONG))
            word = words[starts[chosen] + offset]
            own = total[chosen]
            _absorb(own, word & _KEPT[np.minimum(lengths[chosen] - offset, 8)] if is_text else word)
            total[chosen] = own
    _finish(total)
    for row in np.flatnonzero(lengths > LONG).tolist() if most > LONG else ():
        total[row] = (
            hash(column.items[starts[row] : starts[row] + lengths[row]].tobytes())
            & 0xFFFFFFFFFFFFFFFF
        )


def hash_of(text: str) -> int:
    """The hash of one text."""
    data = np.frombuffer(text.encode() + bytes(8), dtype=np.uint8)
    return int(
        hashes(Ragged(data, np.zeros(1, np.int64), np.array([len(data) - 8], dtype=np.int64)))[0]
    )


def equal_to(column: Ragged, text: str) -> Bools:
    """Which cells of a column of text are this one, which is not empty."""
    wanted = text.encode()
    rows = np.flatnonzero(column.lengths == len(wanted))
    alike = np.ones(len(rows), dtype=np.bool_)
    for offset in range(0, len(wanted), 8):
        piece = wanted[offset : offset + 8]
        alike &= (
            _words(column.items)[column.starts[rows] + offset] & _KEPT[len(piece)]
        ) == np.uint64(int.from_bytes(piece, "little"))
    equal = np.zeros(len(column), dtype=np.bool_)
    equal[rows[alike]] = True
    return equal


def within_groups(sizes: Ints) -> Ints:
    """0, 1, 2, … for the members of each of some groups of these sizes, one group after the
    other.
    """
    numbers: Ints = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return numbers


def bag_hashes(column: Ragged, hashes: Words) -> Words:
    """One hash for each list of a column, whatever the order of its items; hashes are those
    of the column, 0 for null.
    """
    names, first, inverse = _distinct(hashes)
    starts, lengths = column.starts[first], np.maximum(column.lengths[first], 0)
    inner = within_groups(lengths)
    sums = np.zeros(len(names), dtype=np.uint64)
    np.add.at(
        sums,
        np.repeat(np.arange(len(names)), lengths),
        mixed(column.items[np.repeat(starts, lengths) + inner].view(np.uint64)),
    )
    bags = mixed(sums, lengths.astype(np.uint64))
    bags[names == 0] = 0
    return bags[inverse]


def distinct_texts(hashes: Words, column: Ragged) -> dict[int, str]:
    """The text behind each hash of a column."""
    names, first, _ = _distinct(hashes)
    return {
        name: column.text(row) for name, row in zip(names.tolist(), first.tolist(), strict=True)
    }


def distinct(values: Array) -> Array:
    """The different numbers of a column, sorted (NumPy's own way, by a table of hashes, takes
    several times as long).
    """
    ordered = np.sort(values)
    new = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return ordered[new]


def _distinct(
    numbers: Words,
) -> tuple[Words, Ints, Ints]:
    """The different numbers of a column, sorted, a row that has each, and which of them each row
    has.
    """
    names = distinct(numbers)
    inverse = np.searchsorted(names, numbers)
    rows = np.zeros(len(names), dtype=np.int64)
    rows[inverse] = np.arange(len(numbers))
    return names, rows, inverse


def _words(items: Bytes) -> Words:
    """The eight bytes from each place on, as one number."""
    return np.ndarray((len(items) - 7,), np.uint64, items, 0, (1,))


def _blocks(count: int) -> Iterator[slice]:
    return (slice(start, min(start + _BLOCK, count)) for start in range(0, count, _BLOCK))


def _absorb(total: Words, column: Words) -> None:
    """One step of the hash, in place."""
    total ^= column
    total *= _MULTIPLIERS[0]
    total ^= total >> _HALF


def _finish(total: Words) -> None:
    total ^= total >> np.uint64(30)
    total *= _MULTIPLIERS[1]
    total ^= total >> np.uint64(27)
    total *= _MULTIPLIERS[2]
    total ^= total >> np.uint64(31)
