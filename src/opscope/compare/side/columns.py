# SPDX-License-Identifier: Apache-2.0
"""The two tables of a run as columns of numbers: what a comparison of millions of rows can afford.

Text becomes 64-bit hashes (run.hashes); only the distinct operators, modules and element
types become Python text. Nothing here makes an object for a row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.operators.spelling import COMPILED
from opscope.run.hashes import (
    Cells,
    Ragged,
    bag_hashes,
    distinct,
    distinct_texts,
    equal_to,
    hash_of,
    hashes,
)
from opscope.run.keys import NONE, keys_of, place_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from opscope.arrays import Array, Bools, Floats, Ints, Words
    from opscope.run.protocol import Run
    from opscope.run.whole_tables import WholeTable

ABSENT = np.iinfo(np.int64).min  # no such integer
_DEEPEST = 64  # calls inside each other that are followed
_FLAT = re.compile(r"^aten__(\w+?_?)_([A-Z]?[A-Za-z0-9]+|dim_IntList|Scalar_Tensor)$")
MODULE, API, OPERATOR = 0, 1, 2  # column level
_CALL_WORDS = ("phase", "op", "module")  # columns of few texts that are kept as such
_WIDE = 1 << 30  # rows from which on twice their number is more than 32 bits hold
_WHOLE = ("version", "storage", "size", "nan", "pos_inf", "neg_inf", "zero")
_FLOATS = ("min", "max", "mean", "l2norm")


class Calls(msgspec.Struct, frozen=True):
    """Table calls by rank, step and index; text columns as hashes. row: its number in the table;
    leaf: no recorded call lies inside.
    """

    row: Ints
    key: Ints
    process: Ints
    rank: Ints
    step: Ints
    index: Ints
    level: NDArray[np.int8]
    parent: Ints
    forward: Ints
    phase: Words
    op: Words
    module: Words
    name: Words
    args: Words
    leaf: Bools

    def __len__(self) -> int:
        return len(self.key)


class Tensors(msgspec.Struct, frozen=True, dict=True):
    """Table tensors in the order of calls; call is the row of Calls. Numbers that are null are NaN,
    or -1 where they count.

    row and call are of index_type.
    """

    row: Array
    call: Array
    output: Bools
    slot: Words
    dtype: Words
    shape: Words
    sorted_shape: Words
    stride: Words
    version: Ints
    storage: Ints
    named: Words
    parameter: Bools
    constant: Bools
    kept: Bools
    size: Ints
    nan: Ints
    pos_inf: Ints
    neg_inf: Ints
    zero: Ints
    min: Floats
    max: Floats
    mean: Floats
    l2norm: Floats
    min_int: Ints
    max_int: Ints
    digest: Words
    digested: Bools
    sampled: Bools

    def __len__(self) -> int:
        return len(self.row)

    @cached_property
    def begins(self) -> Ints:
        """The first row of each call, and behind the last one the number of rows."""
        calls = int(self.call[-1]) + 1 if len(self.call) else 0
        begins: Ints = np.searchsorted(self.call, np.arange(calls + 1))
        return begins


class Side(msgspec.Struct, frozen=True):
    """One run as columns; words gives the text of the hashes of operators, modules, phases and
    element types.

    A side in the common words of two frameworks has the columns it was made from as base, and
    places, its tensors' rows in them.
    """

    run: Run
    calls: Calls
    tensors: Tensors
    words: dict[int, str]
    base: Side | None = None
    places: Ints | None = None

    def texts(self, hashes: Words) -> list[str]:
        """The text of each hash, "" where none is known."""
        return [self.words.get(value, "") for value in hashes.tolist()]

    def operator(self, call: int) -> str:
        """The operator of a call, "" where it is not known."""
        return self.words.get(int(self.calls.op[call]), "")

    def which(self, column: Words, holds: Callable[[str], bool]) -> Bools:
        """Of which rows of a column of hashes something holds, asked once for each text."""
        return self.told(column, holds, np.bool_)

    def in_phase(self, word: str) -> Bools:
        """Which calls are of a phase."""
        return self.which(self.calls.phase, lambda phase: phase == word)

    def graphs(self) -> Bools:
        """Which calls are graphs of compiled code."""
        return self.which(self.calls.op, lambda op: op.startswith(COMPILED))

    def enclosing(self, kept: Bools) -> Ints:
        """For each call the place of the nearest enclosing call that is kept, NONE where there is
        none.
        """
        calls = self.calls
        parents = np.full(len(calls), NONE, dtype=np.int64)
        inner = np.flatnonzero(calls.parent >= 0)
        if len(inner):
            keys = keys_of(calls.process[inner], calls.parent[inner])
            parents[inner] = place_of(keys, calls.key)
        for _ in range(_DEEPEST):
            skipped = (parents >= 0) & ~kept[np.maximum(parents, 0)]
            if not skipped.any():
                return parents
            parents[skipped] = parents[parents[skipped]]
        return np.where((parents >= 0) & kept[np.maximum(parents, 0)], parents, NONE)

    def told(self, column: Words, what: Callable[[str], Any], dtype: Any) -> Array:
        """What is to be said of the text of each row of a column of hashes, asked once for each
        text.
        """
        words = distinct(column)
        each = np.array([what(text) for text in self.texts(words)], dtype=dtype)
        return each[np.searchsorted(words, column)]


def side_of(run: Run, read_calls: WholeTable, read_tensors: WholeTable) -> Side:
    """What was read as columns: long vectors, on which several threads work at once."""
    calls, words = _calls(read_calls)
    tensors, types = _tensors(read_tensors, calls)
    for read in (read_calls, read_tensors):
        read.release()
    side = Side(
        run, calls, tensors, {key: plain_operator(word) for key, word in (words | types).items()}
    )
    leaf = calls.leaf | _closed(side)
    return msgspec.structs.replace(side, calls=msgspec.structs.replace(calls, leaf=leaf))


def _closed(side: Side) -> Bools:
    """Graphs of compiled code of which nothing is known but what goes in and comes out."""
    calls, tensors, graphs = side.calls, side.tensors, side.graphs()
    if not graphs.any():
        return graphs
    told = np.unique(tensors.call[tensors.output & (tensors.nan >= 0)])
    around = told[(calls.level[told] == OPERATOR) & ~graphs[told]]
    open_ = np.zeros(len(calls), dtype=np.bool_)
    for _ in range(_DEEPEST):
        around = around[calls.parent[around] >= 0]
        around = np.unique(
            place_of(keys_of(calls.process[around], calls.parent[around]), calls.key)
        )
        around = around[(around >= 0) & ~open_[around]]
        if not len(around):
            break
        open_[around] = True
    closed: Bools = graphs & ~open_
    return closed


def plain_operator(word: str) -> str:
    """An operator of PyTorch as PyTorch spells it, where a layout of files allowed no colons and
    dots (`aten__add_Tensor`).
    """
    return _FLAT.sub(r"aten::\1.\2", word)


def _calls(read: WholeTable) -> tuple[Calls, dict[int, str]]:
    names = ("process", "rank", "step", "index", "parent", "forward_index")
    number = {name: read.numbers(name, np.int64, NONE) for name in names}
    words: dict[int, str] = {}
    hashed: dict[str, Words] = {}
    for name in _CALL_WORDS:
        texts = read.cells(name)
        codes = hashes(texts.different, null=hash_of(""))
        words |= distinct_texts(codes, texts.different)
        hashed[name] = texts.each(codes)
    hashed |= {name: read.hashes(name) for name in ("name", "args")}
    sort_keys = [number[name] for name in ("rank", "process", "step", "index")]
    order: Any = slice(None) if _in_order(sort_keys) else np.lexsort(sort_keys[::-1])
    key = keys_of(number["process"], number["index"])[order]
    inside = np.flatnonzero(number["parent"] >= 0)
    parents = distinct(keys_of(number["process"][inside], number["parent"][inside]))
    calls = Calls(
        row=np.arange(read.count)[order],
        key=key,
        process=number["process"][order],
        rank=number["rank"][order],
        step=number["step"][order],
        index=number["index"][order],
        level=_levels(read.cells("level"))[order],
        parent=number["parent"][order],
        forward=number["forward_index"][order],
        leaf=~np.isin(key, parents),
        **{name: column[order] for name, column in hashed.items()},
    )
    return calls, words


def _levels(words: Cells) -> NDArray[np.int8]:
    known = words.different
    return words.each(
        np.where(
            equal_to(known, "module"), MODULE, np.where(equal_to(known, "api"), API, OPERATOR)
        ).astype(np.int8)
    )


def _in_order(columns: Sequence[Ints]) -> bool:
    """Whether rows are sorted by these columns, the first of them first."""
    sorted_so = np.ones(max(len(columns[0]) - 1, 0), dtype=np.bool_)
    for column in columns[::-1]:
        before, after = column[:-1], column[1:]
        sorted_so = (before < after) | ((before == after) & sorted_so)
    return bool(sorted_so.all())


def _tensors(read: WholeTable, calls: Calls) -> tuple[Tensors, dict[int, str]]:
    call = _owners(read.numbers("process", np.int64, 0), read.numbers("index", np.int64, 0), calls)
    order: Any = slice(None)
    if len(call) and (np.any(call[1:] < call[:-1]) or call.min() < 0):
        order = np.argsort(call, kind="stable")
        order = order[call[order] >= 0]
    types, shapes, roles, sides = (read.cells(name) for name in ("dtype", "shape", "role", "io"))
    dtype, shape = hashes(types.different), hashes(shapes.different)
    flags = {
        "output": sides.each(equal_to(sides.different, "output")),
        "constant": roles.each(equal_to(roles.different, "constant")),
        "parameter": roles.each(
            equal_to(roles.different, "parameter")
            | equal_to(roles.different, "buffer")
            | equal_to(roles.different, "shard")
        ),
        "kept": read.placed("value"),
        "digested": read.known("digest"),
        "sampled": read.known("sample"),
    }
    hashed = {
        "slot": read.hashes("slot"),
        "dtype": types.each(dtype),
        "shape": shapes.each(shape),
        "stride": read.hashes("stride"),
        "sorted_shape": shapes.each(bag_hashes(shapes.different, shape)),
        "named": read.hashes("tensor_name"),
        "digest": read.numbers("digest", np.uint64, 0),
    }
    whole = {name: read.numbers(name, np.int64, NONE) for name in _WHOLE}
    whole["size"] = _sizes(whole["size"], shapes)
    whole |= {name: read.numbers(name, np.int64, ABSENT) for name in ("min_int", "max_int")}
    floats = {name: read.numbers(name, np.float64, np.nan) for name in _FLOATS}
    columns = {name: column[order] for name, column in (flags | hashed | whole | floats).items()}
    row = np.arange(read.count, dtype=call.dtype)[order]
    return Tensors(row=row, call=call[order], **columns), distinct_texts(dtype, types.different)


def _sizes(size: Ints, shapes: Cells) -> Ints:
    """Numbers of elements; those that nobody counted from the shape, NONE where that is not known
    or absurd.
    """
    return (
        np.where(size < 0, shapes.each(_products(shapes.different)), size)
        if (size < 0).any()
        else size
    )


def _products(shapes: Ragged) -> Ints:
    """Elements of each shape, NONE where that is not known or absurd."""
    product = np.where(shapes.lengths >= 0, 1.0, -1.0)
    for axis in range(int(shapes.lengths.max(initial=0))):
        longer = np.flatnonzero(shapes.lengths > axis)
        product[longer] *= shapes.items[shapes.starts[longer] + axis]
    return np.where((product >= 0) & (product < 2.0**62), product, NONE).astype(np.int64)


def index_type(count: int) -> type[np.signedinteger[Any]]:
    """The type of numbers of so many rows: half as wide where that is enough, as a comparison holds
    a dozen columns of them.
    """
    return np.int32 if count < _WIDE else np.int64


def _owners(process: Ints, index: Ints, calls: Calls) -> Array:
    """Row of Calls of each tensor row; the rows of a call mostly stand together, so each run of
    them is looked up once.
    """
    dtype = index_type(max(len(index), len(calls)))
    if not len(index):
        return index.astype(dtype)
    starts = np.flatnonzero(np.r_[True, (index[1:] != index[:-1]) | (process[1:] != process[:-1])])
    owners = place_of(keys_of(process[starts], index[starts]), calls.key).astype(dtype)
    return np.repeat(owners, np.diff(np.r_[starts, len(index)]))
