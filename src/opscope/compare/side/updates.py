# SPDX-License-Identifier: Apache-2.0
"""How a program trains what no module names: where it writes to it in place, or computes anew what
takes its place, and from which gradients.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from opscope.compare.side.call_rows import computing, inputs_of, outputs_of
from opscope.compare.side.columns import ABSENT
from opscope.compare.side.contents import bears_identities, differentiated
from opscope.judge.operators import is_per_element
from opscope.run.hashes import distinct, mixed
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.arrays import Bools, Ints
    from opscope.compare.side.columns import Side
    from opscope.compare.side.producers import Flow

MAX_ABOVE = 64  # calls between a gradient and what is computed from it
LEAST = 2  # elements: of a single number the gradient cannot be told from other numbers


class Update(NamedTuple):
    """A row that is written to what is trained: the gradients from which it is computed, the row
    that is their sum where they are of several backward passes (NONE elsewhere), the storage of
    what it takes the place of, and that in which this lay first.
    """

    row: int
    gradients: list[int]
    total: int
    replaces: int
    first: int


class Updates(NamedTuple):
    """The updates of a run, in their order, and the first rows in which a backward pass goes
    through what reads that of which some take the place, by their storages: what is written before
    is made ready.
    """

    each: list[Update]
    begins: dict[int, int]


def updates_of(side: Side, flow: Flow, backward: Bools, *, anew: bool) -> Updates:
    """The updates of a run. backward: its calls of backward passes; anew: whether they may be of
    what is computed anew.
    """
    in_place = _in_place(side, backward).tolist()
    storages = set(side.tensors.storage[in_place].tolist())
    rows, begins = _anew(side, backward) if anew else ([], {})

    def among(rows: set[int]) -> list[Update]:
        search = _Search(side, flow, backward, storages | begins.keys())
        for row in sorted(rows):
            search.learn(row, in_place=int(side.tensors.storage[row]) in storages)
        return search.updates

    read = {*in_place, *rows}
    each = among(read)
    unread = _unread(side, backward, _anew_by_first(side, each, storages))
    each = among(read | unread) if unread - read else each
    gone = _given_up(side, backward, _anew_by_first(side, each, storages))
    begins = {storage: row for storage, row in begins.items() if storage not in storages}
    return Updates([update for update in each if update.first not in gone], begins)


def updates_of_parameters(side: Side, flow: Flow, backward: Bools) -> list[Update]:
    """The updates of a run whose parameters have names: what is written to these in place after the
    first of its calls of backward passes.
    """
    tensors = side.tensors
    behind = side.calls.leaf & ~backward & (np.arange(len(side.calls)) > int(np.argmax(backward)))
    written = tensors.output & tensors.parameter & (tensors.named != 0) & behind[tensors.call]
    rows = np.flatnonzero(written & computing(side)[tensors.call] & (tensors.size >= LEAST))
    search = _Search(side, flow, backward, set(tensors.storage[rows].tolist()))
    for row in rows.tolist():
        search.learn(row, in_place=True)
    return search.updates


def _in_place(side: Side, backward: Bools) -> Ints:
    """Rows written in place after the first backward pass, of what was read before it and not
    written to in between, as a mean is that a norm keeps.
    """
    tensors = side.tensors
    begin = int(np.argmax(backward))
    computed = computing(side)[tensors.call] & (tensors.storage >= 0) & (tensors.size >= LEAST)
    early = computed & (tensors.call < begin)
    reads = np.flatnonzero(early & ~tensors.output)
    first: dict[int, int] = {}
    for row in reads.tolist():
        first.setdefault(int(tensors.storage[row]), row)
    rewritten = {
        int(tensors.storage[row])
        for row in np.flatnonzero(early & tensors.output).tolist()
        if row > first.get(int(tensors.storage[row]), len(tensors))
    }
    pairs = mixed(tensors.call.astype(np.uint64), tensors.storage.astype(np.uint64))
    in_place = np.isin(pairs, pairs[~tensors.output])
    later = computed & tensors.output & in_place & ~backward[tensors.call] & (tensors.call > begin)
    return np.flatnonzero(later & np.isin(tensors.storage, sorted(first.keys() - rewritten)))


def _anew(side: Side, backward: Bools) -> tuple[list[int], dict[int, int]]:
    """Rows of which a backward pass goes through what reads them, but none through what made them,
    behind the first pass: what is trained, computed anew, or data; and by the storages of what such
    a row may take the place of where that is first read so.
    """
    tensors, begin = side.tensors, int(np.argmax(backward))
    through = differentiated(side)
    floats = (tensors.min_int == ABSENT) & (tensors.storage >= 0) & (tensors.size >= LEAST)
    read = np.flatnonzero(floats & ~tensors.output & through[tensors.call])
    storages = tensors.storage[read].tolist()
    last = dict(zip(storages, tensors.call[read].tolist(), strict=True))
    first = dict(zip(storages[::-1], read[::-1].tolist(), strict=True))
    made = floats & tensors.output & computing(side)[tensors.call]
    of_passes = (through | backward)[tensors.call]
    rows = [
        row
        for row in np.flatnonzero(made & ~of_passes & (tensors.call > begin)).tolist()
        if tensors.call[row] < last.get(int(tensors.storage[row]), NONE)
    ]
    computed = set(tensors.storage[made & (of_passes | (tensors.call > begin))].tolist())
    begins = {storage: row for storage, row in first.items() if storage not in computed}
    return rows, begins


def _anew_by_first(side: Side, updates: list[Update], in_place: set[int]) -> dict[int, list[int]]:
    """The updates that compute something anew, by the storage in which that lay first."""
    rows = defaultdict[int, list[int]](list)
    for update in updates:
        if int(side.tensors.storage[update.row]) not in in_place:
            rows[update.first].append(update.row)
    return rows


def _ends(side: Side, backward: Bools) -> tuple[Ints, Ints]:
    """The leaf calls, and the places among them at which those of backward passes end."""
    leaf = np.flatnonzero(side.calls.leaf)
    passes = backward[leaf]
    return leaf, np.flatnonzero(passes & ~np.r_[passes[1:], False])


def _unread(side: Side, backward: Bools, anew: dict[int, list[int]]) -> set[int]:
    """What is as far behind a backward pass as updates are behind earlier ones, and made by their
    operator: where a training ends, nothing reads the last ones. Of passes no other than those at
    which such updates come: behind one that climbs, another one may step.
    """
    leaf, ends = _ends(side, backward)
    ops, calls = side.calls.op[leaf], side.tensors.call
    rows = set[int]()
    for known in anew.values():
        behind = int(np.searchsorted(leaf[ends], calls[known[-1]])) - 1
        passes = defaultdict[tuple[int, int, int], list[int]](list)
        for row in known:
            call = int(calls[row])
            at, number = int(np.searchsorted(leaf, call)), outputs_of(side, call).index(row)
            since = int(np.searchsorted(ends, at)) - 1
            passes[at - int(ends[since]), int(ops[at]), number].append(since)
        for (distance, op, number), those in passes.items():
            between = np.diff(those)
            period = int(min(between[between > 0], default=1))
            places = ends[behind:][(np.arange(behind, len(ends)) - those[-1]) % period == 0]
            places = places[places + distance < len(leaf)] + distance
            for alike in leaf[places[ops[places] == op]].tolist():
                rows.update(outputs_of(side, alike)[number : number + 1])
    return rows


def _given_up(side: Side, backward: Bools, anew: dict[int, list[int]]) -> set[int]:
    """What is no longer computed anew though backward passes go on as they did between two of its
    updates: which is its last state is not known.
    """
    leaf, ends = _ends(side, backward)
    gone = set[int]()
    for first, rows in anew.items():
        passes = np.searchsorted(leaf[ends], side.tensors.call[rows])
        between = np.diff(passes)
        if len(ends) - passes[-1] >= min(between[between > 0], default=passes[0]):
            gone.add(first)
    return gone


def _unseen_gradients(side: Side, flow: Flow, backward: Bools) -> Bools:
    """Rows that may be gradients which no call made, as in dumps: numbers that no forward call
    reads.
    """
    tensors, forward = side.tensors, side.in_phase("forward")
    if bears_identities(side):
        return np.zeros(len(tensors), dtype=np.bool_)
    unseen: Bools = ~tensors.output & (flow.source_row < 0) & (tensors.min < tensors.max)
    given = distinct(flow.state[~tensors.output & forward[tensors.call]])
    return unseen & ~np.isin(flow.state, given) & (tensors.call > int(np.argmax(backward)))


class _Search:
    """The updates that are known so far, in their order."""

    def __init__(self, side: Side, flow: Flow, backward: Bools, trained: set[int]) -> None:
        self._side, self._flow, self._backward = side, flow, backward
        self._trained = trained  # storages of what may be
        self._first: dict[int, int] = {}  # by the storage of what was computed anew
        self._unseen = _unseen_gradients(side, flow, backward)
        self._passes = np.flatnonzero(backward)
        self._calls: list[int] = []  # of the updates
        self.updates: list[Update] = []

    def learn(self, row: int, *, in_place: bool) -> None:
        """Keeps an update, the next in their order: what is computed anew is none unless it is made
        of a gradient and of what it takes the place of.
        """
        storage = int(self._side.tensors.storage[row])
        gradients, total, replaced = self._made_of(row)
        if in_place:
            replaced = [storage]
        if not (replaced and (in_place or gradients)):
            return
        first = self._first.setdefault(storage, self._first.get(replaced[0], replaced[0]))
        self._trained.add(storage)
        self._calls.append(int(self._side.tensors.call[row]))
        self.updates.append(Update(row, gradients, total, replaced[0], first))

    def _begin(self, update: int) -> int:
        """The last update before the backward passes of which a call computes one; what is older
        comes of other steps.
        """
        last = self._passes[np.searchsorted(self._passes, update) - 1]
        at = bisect_left(self._calls, last)
        return self._calls[at - 1] if at else NONE

    def _made_of(self, row: int) -> tuple[list[int], int, list[int]]:
        """The gradients of an update, of its size, the row that is their sum, and the storages of
        what is trained that it is computed of; of a dump also gradients that no call made. What is
        computed of another that is trained, as an average of weights, has no gradient.
        """
        tensors, flow = self._side.tensors, self._flow
        begin = self._begin(int(tensors.call[row]))
        waiting, above, gradients = [row], dict[int, list[int]](), list[int]()
        known: dict[int, int] = {}  # the first row of each content that no call made
        replaced: list[int] = []
        while waiting and len(above) < MAX_ABOVE:
            made = waiting.pop()
            if made in above:
                continue
            above[made] = []
            for read in _read_for(self._side, made):
                source, storage = int(flow.source_row[read]), int(tensors.storage[read])
                if tensors.size[read] != tensors.size[row]:
                    continue
                if storage in self._trained:
                    replaced.append(storage)
                    continue
                if (source < 0 and not self._unseen[read]) or (
                    source >= 0 and tensors.call[source] <= begin
                ):
                    continue
                from_outside = source < 0 or self._backward[tensors.call[source]]
                if source < 0:
                    source = known.setdefault(int(flow.state[read]), read)
                above[made].append(source)
                (gradients if from_outside else waiting).append(source)
        return gradients, _sum_of(set(gradients), above), replaced


def _sum_of(gradients: set[int], above: dict[int, list[int]]) -> int:
    """The first row for which all of several gradients are read; NONE of a single one."""
    if len(gradients) < 2:
        return NONE
    reached: dict[int, set[int]] = {row: {row} for row in gradients}
    for row in sorted(above):
        reached[row] = set[int]().union(*(reached.get(read, set()) for read in above[row]))
        if reached[row] == gradients:
            return row
    return NONE


def _read_for(side: Side, made: int) -> list[int]:
    """The inputs that a result is computed from: of a call over lists the result's own elements."""
    call = int(side.tensors.call[made])
    reads = inputs_of(side, call)
    if not is_per_element(side.operator(call)):
        return reads
    results = outputs_of(side, call)
    return reads[results.index(made) :: len(results)]
