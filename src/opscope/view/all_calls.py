# SPDX-License-Identifier: Apache-2.0
"""All calls of a run as columns, and what each of them gave: one pass over the tensors, of which
every document makes its own sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.run.keys import keys_of
from opscope.run.query import filled
from opscope.run.schema import CALL_TYPES, LEVELS
from opscope.run.vectors import Texts, vectors
from opscope.view.columns import TextColumn, numbers_at, read

if TYPE_CHECKING:
    from opscope.arrays import Array, Bools, Bytes, Floats, Ints
    from opscope.run.protocol import Run

NONE, SOUND, MASK, NEAR, UNSOUND, ORIGIN = range(6)  # health; of several calls the largest counts
UNKNOWN = -1.0  # a magnitude of which nothing is known
_PLACE = ("rank", "process", "step", "index")
_STATISTICS = ("size", "nan", "pos_inf", "neg_inf", "zero", "near_limit", "min", "max")


class Results(msgspec.Struct, frozen=True):
    """Of each call what its outputs are together.

    there: whether it has any; health: the worst of them; unsound: whether elements are lost to NaN
    or to infinities above 0; largest: magnitude, UNKNOWN where none is known; lost: elements that
    are not finite. In bytes, 0 where nothing is known: magnitude, 128 + floor(log2 of the largest),
    and zeros, their share in what is of floating point, 1 to 255.
    """

    there: Bools
    health: Bytes
    unsound: Bools
    largest: Floats
    lost: Ints
    magnitude: Bytes
    zeros: Bytes


class AllCalls:
    """Columns of all calls of a run, by rank, process, step and index, each read when it is first
    asked for.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self._numbers: dict[str, Array] = {}
        self._texts: dict[str, TextColumn] = {}

    def __len__(self) -> int:
        return len(self._order)

    @cached_property
    def _order(self) -> Ints:
        """Where in the table each call is."""
        found = read(self.run, "calls", _PLACE).numbers
        order = np.lexsort([found[name] for name in reversed(_PLACE)])
        self._numbers |= {name: column[order] for name, column in found.items()}
        return order

    def numbers(self, name: str, null: int = 0) -> Array:
        """A column of numbers, null where there is none."""
        order = self._order
        if name not in self._numbers:
            self._numbers[name] = read(self.run, "calls", (name,)).numbers[name][order]
        filled_: Array = np.ma.filled(self._numbers[name], null)
        return filled_

    def cells(self, name: str, rows: Ints) -> list[Any]:
        """A column of some calls, None where there is nothing."""
        if CALL_TYPES[name] == "string":
            return self.texts(name).at(rows)
        self.numbers(name)
        cells: list[Any] = self._numbers[name][rows].tolist()
        return cells

    def texts(self, name: str) -> TextColumn:
        """A column of texts."""
        order = self._order
        if name not in self._texts:
            column = read(self.run, "calls", (name,)).texts[name]
            self._texts[name] = TextColumn(column.numbers[order], column.words)
        return self._texts[name]

    @cached_property
    def keys(self) -> Ints:
        """The numbers of the calls."""
        return keys_of(self.numbers("process"), self.numbers("index"))

    @cached_property
    def _by_key(self) -> Ints:
        return np.argsort(self.keys, kind="stable")

    @cached_property
    def _sorted_keys(self) -> Ints:
        return self.keys[self._by_key]

    def rows(self, keys: Ints) -> Ints:
        """Which of the calls each key is, -1 where it is none of them."""
        if not len(self):
            return np.full(len(keys), -1)
        places = np.minimum(np.searchsorted(self._sorted_keys, keys), len(self) - 1)
        return np.where(self._sorted_keys[places] == keys, self._by_key[places], -1)

    @cached_property
    def finest(self) -> str:
        """The finest level that there are calls of: operator, api or module."""
        known = [level for level in LEVELS if level in self.texts("level").words]
        return next(iter([*known, *self.texts("level").words]), LEVELS[0])

    @cached_property
    def of_finest(self) -> Bools:
        """Which calls are of that level."""
        return self.texts("level").which(lambda level: level == self.finest)

    @cached_property
    def results(self) -> Results:
        """What each call gave."""
        results, dtypes = _nothing(len(self)), Texts()
        for batch in vectors(self.run, "tensors"):
            outputs = np.flatnonzero(batch.are("io", "output"))
            rows = self.rows(batch.keys[outputs])
            there = rows >= 0
            rows, outputs = rows[there], outputs[there]
            statistics = {name: numbers_at(batch, name, outputs) for name in _STATISTICS}
            hashes = dtypes.learn(batch, "dtype", outputs)
            _add(results, rows, statistics, dtypes.told(hashes, lambda name: "float" in name, bool))
        return results


def _nothing(calls: int) -> Results:
    return Results(
        there=np.zeros(calls, bool),
        health=np.zeros(calls, np.uint8),
        unsound=np.zeros(calls, bool),
        largest=np.full(calls, UNKNOWN),
        lost=np.zeros(calls, np.int64),
        magnitude=np.zeros(calls, np.uint8),
        zeros=np.zeros(calls, np.uint8),
    )


def _add(results: Results, rows: Ints, outputs: Mapping[str, Array], is_float: Bools) -> None:
    """Adds outputs to the calls of these rows."""
    unsound = above_zero(outputs, "nan", "pos_inf")
    largest = magnitudes(outputs)
    results.there[rows] = True
    results.unsound[rows[unsound]] = True
    np.maximum.at(results.health, rows, _health(outputs, unsound))
    with np.errstate(invalid="ignore"):  # a NaN is the largest
        np.maximum.at(results.largest, rows, largest)
    np.add.at(results.lost, rows, lost_elements(outputs))
    np.maximum.at(results.magnitude, rows, _powers(largest, np.ma.getmaskarray(outputs["min"])))
    np.maximum.at(results.zeros, rows, _zeros(outputs, is_float))


def magnitudes(tensors: Mapping[str, Array]) -> Floats:
    """The largest magnitude in each tensor; NaN where a tool told of one, the largest of all."""
    ends = [
        np.where(np.ma.getmaskarray(tensors[name]), UNKNOWN, np.abs(np.ma.getdata(tensors[name])))
        for name in ("min", "max")
    ]
    largest: Floats = np.maximum(*ends)
    return largest


def lost_elements(tensors: Mapping[str, Array]) -> Ints:
    """Elements of each tensor that are not finite; 0 where one of the counts is not known."""
    counts = [tensors[name] for name in ("nan", "pos_inf", "neg_inf")]
    known = ~np.logical_or.reduce([np.ma.getmaskarray(count) for count in counts])
    lost: Ints = np.where(known, np.add.reduce([np.ma.getdata(count) for count in counts]), 0)
    return lost


def above_zero(tensors: Mapping[str, Array], *names: str) -> Bools:
    """Whether these counts are above 0 together and all of them known."""
    counts = [tensors[name] for name in names]
    known = ~np.logical_or.reduce([np.ma.getmaskarray(count) for count in counts])
    above: Bools = known & (np.add.reduce([np.ma.getdata(count) for count in counts]) > 0)
    return above


def _health(outputs: Mapping[str, Array], unsound: Bools) -> Bytes:
    masks, near = filled(outputs["neg_inf"]) > 0, filled(outputs["near_limit"]) > 0
    worst = np.select([unsound, near, masks], [UNSOUND, NEAR, MASK], SOUND)
    health: Bytes = np.where(np.ma.getmaskarray(outputs["size"]), NONE, worst).astype(np.uint8)
    return health


def _powers(largest: Floats, no_least: Bools) -> Bytes:
    """Magnitudes as bytes; 1 for what is all zeros."""
    magnitudes_ = np.where(np.isnan(largest), np.inf, largest)
    with np.errstate(divide="ignore", invalid="ignore"):
        powers = np.clip(128 + np.floor(np.log2(magnitudes_)), 1, 255)
    told: Bytes = np.where(magnitudes_ > 0, powers, np.where(no_least, 0, 1)).astype(np.uint8)
    return told


def _zeros(outputs: Mapping[str, Array], is_float: Bools) -> Bytes:
    """The share of zeros as bytes, of what is of floating point and has elements."""
    zeros, sizes = filled(outputs["zero"]), filled(outputs["size"])
    known = ~np.ma.getmaskarray(outputs["zero"]) & (sizes > 0) & is_float
    share = 254.0 * zeros / np.maximum(sizes, 1)
    told: Bytes = np.where(known, np.minimum(1 + np.floor(share + 0.5), 255), 0).astype(np.uint8)
    return told
