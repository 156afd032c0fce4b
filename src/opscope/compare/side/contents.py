# SPDX-License-Identifier: Apache-2.0
"""Who made what in a dump that gives tensors no identity, as msprobe's: told by what they hold, in
whatever shape, and where an operator is not in the dump by what goes before and behind it.

A dump knows statistics, a forward call and its gradient by name, and no views; what puts tensors
together may be missing too. Minimum, maximum and number of elements are those of a view; sums
depend on the order of memory.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.compare.side.call_rows import inputs_of, outputs_of
from opscope.compare.side.columns import ABSENT, API
from opscope.compare.side.lowering import spelling
from opscope.compare.side.producers import Flow, makers_of, numbers_telling
from opscope.operators.catalogue import works_in_place
from opscope.run.hashes import hash_of
from opscope.run.keys import NONE, keys_of, place_of

if TYPE_CHECKING:
    from opscope.arrays import Bools, Ints, Words
    from opscope.compare.side.columns import Side

NEAR = 1e-5  # of its norm: sums of one content in another order of memory
MOST_WAITING = 64  # results that nobody reads, of one step
MOST = 8  # rows of one extreme that are looked at
OPTIMIZER = "optimizer"


def bears_identities(side: Side) -> bool:
    """Whether a run says which tensor is which."""
    return side.run.info.coverage.versions


def in_dumps(target: Side, golden: Side) -> bool:
    """Whether one of two sides at least does not."""
    return not (bears_identities(target) and bears_identities(golden))


def tells_who_made_what(side: Side) -> bool:
    """Whether a run says which tensor is which, and what its calls read, or is a dump of torch's
    APIs or modules, of which that can be told by what they hold.
    """
    if bears_identities(side):
        return side.run.info.coverage.reads
    return spelling(side) == "torch" or side.run.info.config.get("framework") == "pytorch"


def dump_beside_run(target: Side, golden: Side) -> bool:
    """Whether one of two programs of torch is in a dump of its APIs, the other in a run of its
    operators.
    """
    both = target, golden
    torch = all(spelling(side) == "torch" for side in both)
    return torch and bears_identities(target) != bears_identities(golden)


def begins_backward(side: Side, source: Ints) -> Bools:
    """Calls with which backward passes of a dump begin: those of a number that no forward call
    reads, and of a number behind calls of another phase. source: the row that each row holds.
    """
    tensors, calls = side.tensors, side.calls
    backward = side.in_phase("backward") & calls.leaf
    forward = side.in_phase("forward") & calls.leaf
    read = ~tensors.output & forward[tensors.call] & (source >= 0)
    reads = np.zeros(len(calls) + 1, dtype=np.bool_)  # and one for NONE
    reads[tensors.call[source[read]]] = True
    behind = reads[forward_of(side)]
    begins: Bools = backward & ~(np.r_[False, backward[:-1]] & (behind | (calls.forward < 0)))
    begins[tensors.call[~tensors.output & (tensors.size != 1)]] = False
    return begins & np.isin(np.arange(len(calls)), tensors.call[~tensors.output])


def calls_back(side: Side) -> Bools:
    """Calls of torch's APIs that run a backward pass."""
    goes_back = side.which(side.calls.op, lambda op: op.endswith((".backward", "autograd.grad")))
    calls: Bools = goes_back & (side.calls.level == API)
    return calls


def forward_of(side: Side) -> Ints:
    """For each call its forward call, NONE where it has none."""
    calls = side.calls
    places = place_of(keys_of(calls.process, np.maximum(calls.forward, 0)), calls.key)
    return np.where(calls.forward >= 0, places, NONE)


def differentiated(side: Side) -> Bools:
    """Calls that a backward pass goes through."""
    forward = forward_of(side)[side.in_phase("backward")]
    through = np.zeros(len(side.calls), dtype=np.bool_)
    through[forward[forward >= 0]] = True
    return through


def told_by_contents(side: Side, flow: Flow) -> tuple[Side, Flow]:
    """The side and its flow with producers told by contents, storages for what is written in place,
    and the calls behind a backward pass that end in such a write as those of an optimizer; as they
    are where the run bears identities.
    """
    if bears_identities(side):
        return side, flow
    contents = _Contents(side)
    side = _with_names(_with_storages(side, contents))
    source = contents.sources()
    _bridge_results(side, source, contents.telling)
    producer = makers_of(side.tensors, source)
    return side, Flow(producer, source, contents.states(flow.state), flow.whole)


class _Contents:
    """What each row holds, as a number of the first row that holds the same."""

    def __init__(self, side: Side) -> None:
        self._side, tensors = side, side.tensors
        known = np.isfinite(np.fmax(tensors.min, tensors.max))  # the other one may be infinite
        several = (tensors.size > 1) & ~(tensors.min == tensors.max)
        self.telling: Bools = several | ((tensors.size == 1) & numbers_telling(tensors))
        self.telling &= known & ~_of_few_integers(side)
        self.first = np.arange(len(tensors))
        held: dict[tuple[float, ...], list[int]] = defaultdict(list)
        process = side.calls.process[tensors.call]
        keys = zip(
            process.tolist(),
            tensors.size.tolist(),
            np.nan_to_num(tensors.min, nan=-np.inf).tolist(),
            np.nan_to_num(tensors.max, nan=np.inf).tolist(),
            strict=True,
        )
        self._same: dict[int, list[int]] = {}
        for row, (key, tells) in enumerate(zip(keys, self.telling.tolist(), strict=True)):
            if not tells:
                continue
            alike = held[key]
            same = next((other for other in alike[-MOST:] if self._alike(row, other)), NONE)
            if same < 0:
                alike.append(row)
                self._same[row] = [row]
            else:
                self.first[row] = same
                self._same[same].append(row)

    def _alike(self, row: int, other: int) -> bool:
        tensors = self._side.tensors
        norm = float(tensors.l2norm[other])
        if np.isnan(norm) or np.isnan(tensors.l2norm[row]):
            return bool(np.isnan(norm) and np.isnan(tensors.l2norm[row]))
        scale = norm / max(int(tensors.size[other]), 1) ** 0.5
        return bool(
            abs(tensors.l2norm[row] - norm) <= NEAR * norm
            and abs(tensors.mean[row] - tensors.mean[other]) <= NEAR * scale
        )

    def sources(self) -> Ints:
        """For each input the output row that last held its content before, NONE where none did."""
        tensors, leaf = self._side.tensors, self._side.calls.leaf
        source = np.full(len(tensors), NONE)
        for rows in self._same.values():
            last = NONE
            for row in rows:
                if tensors.output[row]:
                    last = row if leaf[tensors.call[row]] else last
                elif last >= 0 and tensors.call[last] < tensors.call[row]:
                    source[row] = last
        return source

    def states(self, state: Words) -> Words:
        """The states of rows, one of each content."""
        return np.where(self.telling, state[self.first], state)


def _of_few_integers(side: Side) -> Bools:
    tensors = side.tensors
    whole = tensors.min_int != ABSENT
    few: Bools = whole & (tensors.max - tensors.min < 2)
    return few


def _with_storages(side: Side, contents: _Contents) -> Side:
    """The side with a storage for each content, the same for what is written in place of it, and
    calls of optimizers told as such.
    """
    tensors, calls = side.tensors, side.calls
    root = np.arange(len(tensors))

    def found(row: int) -> int:
        while root[row] != row:
            root[row] = root[root[row]]
            row = int(root[row])
        return row

    writes = calls.leaf & side.which(calls.op, works_in_place)
    backward = side.in_phase("backward")
    begins = np.maximum.accumulate(np.where(backward, np.arange(len(calls)), NONE))
    written: list[int] = []
    continued: set[int] = set()
    for call in np.flatnonzero(writes).tolist():
        read, made = inputs_of(side, call)[:1], outputs_of(side, call)[:1]
        if read and made and tensors.size[read[0]] == tensors.size[made[0]]:
            first, last = (int(contents.first[row]) for row in (read[0], made[0]))
            # the same to the last digit, or a copy of what it was, as an average of weights begins
            if first == last or first in continued:
                continue
            continued.add(first)
            before, after = found(first), found(last)
            root[max(before, after)] = min(before, after)
            if begins[call] > tensors.call[first]:
                written.append(call)
    storage = np.array([found(row) for row in contents.first.tolist()], dtype=np.int64)
    phase = calls.phase.copy()
    optimizing = hash_of(OPTIMIZER)
    phase[_updates(side, np.array(written, dtype=np.int64))] = optimizing
    return msgspec.structs.replace(
        side,
        calls=msgspec.structs.replace(calls, phase=phase),
        tensors=msgspec.structs.replace(tensors, storage=storage),
        words={**side.words, optimizing: OPTIMIZER},
    )


def _with_names(side: Side) -> Side:
    """The side with the names of parameters, which a dump gives to modules, for what their
    operators read of them, and for what updates leave in their places.
    """
    tensors = side.tensors
    named = tensors.parameter & (tensors.named != 0)
    storages, first = np.unique(tensors.storage[named], return_index=True)
    if not len(storages):
        return side
    at = np.minimum(np.searchsorted(storages, tensors.storage), len(storages) - 1)
    held = (storages[at] == tensors.storage) & (tensors.named == 0)
    names = np.where(held, tensors.named[named][first][at], tensors.named)
    return msgspec.structs.replace(
        side,
        tensors=msgspec.structs.replace(tensors, named=names, parameter=tensors.parameter | held),
    )


def _updates(side: Side, written: Ints) -> Ints:
    """The forward calls behind a backward pass up to the last before the next one that writes in
    place of what was there before it.
    """
    calls = side.calls
    backward = np.flatnonzero(side.in_phase("backward"))
    forward = np.flatnonzero(side.in_phase("forward") & calls.leaf)
    if not len(backward):
        return forward[:0]
    passes = np.searchsorted(backward, forward)
    last = np.full(len(backward) + 1, NONE)
    for call in written.tolist():
        at = int(np.searchsorted(backward, call))
        last[at] = max(last[at], call)
    chosen: Ints = forward[(passes > 0) & (forward <= last[passes])]
    return chosen


def _bridge_results(side: Side, source: Ints, telling: Bools) -> None:
    """Where nobody made what a forward call reads, it comes of the last result of its size before
    it that nobody reads, else of the last; written into source.
    """
    calls, tensors = side.calls, side.tensors
    forward = side.in_phase("forward") & calls.leaf
    floats = (tensors.min_int == ABSENT) & telling
    read = set(source[~tensors.output].tolist())
    waiting: list[int] = []
    known: set[int] = set()
    step = NONE
    for call in np.flatnonzero(forward).tolist():
        waiting = waiting[-MOST_WAITING:] if calls.step[call] == step else []
        step = calls.step[call]
        for row in inputs_of(side, call):
            content = int(tensors.storage[row])
            if source[row] < 0 and floats[row] and content not in known and waiting:
                alike = [at for at in waiting if tensors.size[at] == tensors.size[row]]
                source[row] = (alike or waiting)[-1]
            known.add(content)
        waiting += [row for row in outputs_of(side, call) if floats[row] and row not in read]
