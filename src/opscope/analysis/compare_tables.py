# SPDX-License-Identifier: Apache-2.0
"""The two tables of a run as columns of numbers: what a comparison of millions of rows can afford.

Text becomes 64-bit hashes inside duckdb; only the distinct operators, modules and element types become Python text. Nothing
here makes an object for a row.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.analysis.tables import keys_of
from opscope.run.query import connect

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from opscope.run.protocol import Run

NONE = -1  # no such row, no such call
ABSENT = np.iinfo(np.int64).min  # no such integer
_FLAT = re.compile(r"^aten__(\w+?_?)_([A-Z]?[A-Za-z0-9]+|dim_IntList|Scalar_Tensor)$")
MODULE, API, OPERATOR = 0, 1, 2  # column level
_CALLS = """process, rank, step, "index", CASE level WHEN 'module' THEN 0 WHEN 'api' THEN 1 ELSE 2 END AS level, parent,
    hash(phase) AS phase, hash(op) AS op, hash(coalesce(module, '')) AS module, hash(name) AS name,
    forward_index, hash(args) AS args"""
_TENSORS = """process, "index", io = 'output' AS output, hash(slot) AS slot, hash(dtype) AS dtype, hash(shape) AS shape,
    hash(list_sort(shape)) AS sorted_shape, hash(stride) AS stride, version, storage,
    CASE WHEN tensor_name IS NOT NULL THEN hash(tensor_name) END AS named,
    role = 'parameter' OR role = 'buffer' AS parameter, role = 'constant' AS constant, value IS NOT NULL AS kept,
    coalesce(size, CASE WHEN len(shape) = 0 THEN 1 ELSE list_product(shape)::BIGINT END) AS size,
    nan, pos_inf, neg_inf, zero, neg, min, max, mean, l2norm, min_int, max_int, digest"""


class Calls(msgspec.Struct, frozen=True):
    """Table calls by rank, step and index; text columns as hashes. leaf: no recorded call lies inside it."""

    key: NDArray[np.int64]
    process: NDArray[np.int64]
    rank: NDArray[np.int64]
    step: NDArray[np.int64]
    index: NDArray[np.int64]
    level: NDArray[np.int8]
    parent: NDArray[np.int64]
    forward: NDArray[np.int64]
    phase: NDArray[np.uint64]
    op: NDArray[np.uint64]
    module: NDArray[np.uint64]
    name: NDArray[np.uint64]
    args: NDArray[np.uint64]
    leaf: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.key)


class Tensors(msgspec.Struct, frozen=True):
    """Table tensors in the order of calls; call is the row of Calls. Numbers that are null are NaN, or -1 where they count."""

    row: NDArray[np.int64]
    call: NDArray[np.int64]
    output: NDArray[np.bool_]
    slot: NDArray[np.uint64]
    dtype: NDArray[np.uint64]
    shape: NDArray[np.uint64]
    sorted_shape: NDArray[np.uint64]
    stride: NDArray[np.uint64]
    version: NDArray[np.int64]
    storage: NDArray[np.int64]
    named: NDArray[np.uint64]
    parameter: NDArray[np.bool_]
    constant: NDArray[np.bool_]
    kept: NDArray[np.bool_]
    size: NDArray[np.int64]
    nan: NDArray[np.int64]
    pos_inf: NDArray[np.int64]
    neg_inf: NDArray[np.int64]
    zero: NDArray[np.int64]
    neg: NDArray[np.int64]
    min: NDArray[np.float64]
    max: NDArray[np.float64]
    mean: NDArray[np.float64]
    l2norm: NDArray[np.float64]
    min_int: NDArray[np.int64]
    max_int: NDArray[np.int64]
    digest: NDArray[np.uint64]
    digested: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.row)


class Side(msgspec.Struct, frozen=True):
    """One run as columns; words gives the text of the hashes of operators, modules, phases and element types.

    A side in the common words of two frameworks has the columns it was made from as base, and places, its tensors' rows in them.
    """

    run: Run
    calls: Calls
    tensors: Tensors
    words: dict[int, str]
    base: Side | None = None
    places: NDArray[np.int64] | None = None

    def texts(self, hashes: NDArray[np.uint64]) -> list[str]:
        """The text of each hash, "" where none is known."""
        return [self.words.get(value, "") for value in hashes.tolist()]


def load_side(run: Run) -> Side:
    """Both tables of a run as columns. Raises FormatError for a table that cannot be read."""
    with connect(run) as connection:
        calls = _calls(_fetched(connection, f"SELECT {_CALLS} FROM calls"))  # noqa: S608 - fixed text
        tensors = _tensors(_fetched(connection, f"SELECT {_TENSORS} FROM tensors"), calls)  # noqa: S608 - fixed text
        words: dict[int, str] = {}
        for table, column in (("calls", "op"), ("calls", "phase"), ("calls", "module"), ("tensors", "dtype")):
            distinct = f"SELECT DISTINCT coalesce({column}, '') AS word FROM {table}"  # noqa: S608 - fixed text
            query = f"SELECT hash(word), word FROM ({distinct})"  # noqa: S608 - fixed text
            words.update({key: plain_operator(word) for key, word in connection.execute(query).fetchall()})
    return Side(run, calls, tensors, words)


def plain_operator(word: str) -> str:
    """An operator of PyTorch as PyTorch spells it, where a layout of files allowed no colons and dots (`aten__add_Tensor`)."""
    return _FLAT.sub(r"aten::\1.\2", word)


def _fetched(connection: Any, query: str) -> dict[str, Any]:
    columns: dict[str, Any] = connection.execute(query).fetchnumpy()
    return columns


def _numbers(column: Any, kind: Any, missing: Any) -> NDArray[Any]:
    """A column as plain numbers, missing where it is null."""
    if isinstance(column, np.ma.MaskedArray):
        return np.where(np.ma.getmaskarray(column), missing, np.ma.getdata(column)).astype(kind, copy=False)
    return np.asarray(column).astype(kind, copy=False)


def _calls(found: dict[str, Any]) -> Calls:
    number = {name: _numbers(found[name], np.int64, NONE) for name in ("process", "rank", "step", "index", "parent", "forward_index")}
    order = np.lexsort((number["index"], number["step"], number["process"], number["rank"]))
    number = {name: column[order] for name, column in number.items()}
    hashes = {name: _numbers(found[name], np.uint64, 0)[order] for name in ("phase", "op", "module", "name", "args")}
    level = _numbers(found["level"], np.int8, 0)[order]
    key = keys_of(number["process"], number["index"])
    inside = number["parent"] >= 0
    parents = np.unique(keys_of(number["process"][inside], number["parent"][inside]))
    return Calls(
        key=key, process=number["process"], rank=number["rank"], step=number["step"], index=number["index"], level=level,
        parent=number["parent"], forward=number["forward_index"], phase=hashes["phase"], op=hashes["op"], module=hashes["module"],
        name=hashes["name"], args=hashes["args"], leaf=~np.isin(key, parents),
    )  # fmt: skip


def _tensors(found: dict[str, Any], calls: Calls) -> Tensors:
    call = _owners(keys_of(_numbers(found["process"], np.int64, 0), _numbers(found["index"], np.int64, 0)), calls)
    order: Any = slice(None)
    if len(call) and (np.any(call[1:] < call[:-1]) or call.min() < 0):
        order = np.argsort(call, kind="stable")
        order = order[call[order] >= 0]
    flags = {name: _numbers(found[name], np.bool_, False)[order] for name in ("output", "parameter", "constant", "kept")}  # noqa: FBT003
    names = ("slot", "dtype", "shape", "sorted_shape", "stride", "named", "digest")
    hashes = {name: _numbers(found[name], np.uint64, 0)[order] for name in names}
    counts = ("version", "storage", "size", "nan", "pos_inf", "neg_inf", "zero", "neg")
    ints = {name: _numbers(found[name], np.int64, NONE)[order] for name in counts}
    ints |= {name: _numbers(found[name], np.int64, ABSENT)[order] for name in ("min_int", "max_int")}
    floats = {name: _numbers(found[name], np.float64, np.nan)[order] for name in ("min", "max", "mean", "l2norm")}
    digested = ~np.ma.getmaskarray(found["digest"])[order]
    return Tensors(row=np.arange(len(call))[order], call=call[order], digested=digested, **flags, **hashes, **ints, **floats)


def _owners(key: NDArray[np.int64], calls: Calls) -> NDArray[np.int64]:
    """Row of Calls of each tensor row; the rows of a call mostly stand together, so each run of them is looked up once."""
    if not len(key):
        return key
    starts = np.flatnonzero(np.r_[True, key[1:] != key[:-1]])
    owners = place_of(key[starts], calls.key, np.argsort(calls.key, kind="stable"))
    return np.repeat(owners, np.diff(np.r_[starts, len(key)]))


def place_of(keys: NDArray[Any], table: NDArray[Any], order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Row of each key in a table whose rows are sorted by order; NONE where it has none, the first where it has several."""
    if not len(table):
        return np.full(len(keys), NONE, dtype=np.int64)
    ordered = table[order]
    at = np.searchsorted(ordered, keys)
    near = np.minimum(at, len(table) - 1)
    return np.where(ordered[near] == keys, order[near], NONE)
