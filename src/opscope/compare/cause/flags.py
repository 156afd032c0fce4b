# SPDX-License-Identifier: Apache-2.0
"""What is known of single calls and rows of a pairing before causes are looked for: flags by vector
operations, each asked once.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.cause.unused_initialisation import dead_calls
from opscope.compare.pair.pairing import Pairing
from opscope.compare.pair.tensors import SAME, UNKNOWN, flags_at
from opscope.compare.side.conditions import STEEP, error_kind
from opscope.compare.side.producers import aliases
from opscope.compare.verdict.allowance import Measures
from opscope.operators.catalogue import traits_of, works_in_place
from opscope.run.hashes import distinct, mixed
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.arrays import Array, Bools, Floats, Ints, Words


_BLOCK = 1 << 16  # rows that are looked at at once
_COARSE = 64.0  # roundings that what two sides compose of other operators may be apart
# of them, as far as they may be alike in all elements: a scale that was rounded itself
_SYSTEMATIC = 4.0


class Medians:
    """Medians of the first n of some numbers, for any n: kept as two heaps, the lower half and the
    upper one, as far as was asked.
    """

    def __init__(self, numbers: Floats) -> None:
        self._numbers = numbers
        self._lower: list[float] = []
        self._upper: list[float] = []
        self._medians = [0.0]

    def of(self, count: int) -> float:
        """The median of the first so many; 0 of none."""
        for number in self._numbers[len(self._medians) - 1 : count].tolist():
            self._take(number)
        return self._medians[count]

    def _take(self, number: float) -> None:
        lower, upper = self._lower, self._upper
        heapq.heappush(upper, -heapq.heappushpop(lower, -number))
        if len(upper) > len(lower):
            heapq.heappush(lower, -heapq.heappop(upper))
        self._medians.append(-lower[0] if len(lower) > len(upper) else (upper[0] - lower[0]) / 2)


def _blocks(count: int) -> Iterator[slice]:
    return (slice(start, start + _BLOCK) for start in range(0, count, _BLOCK))


class Signs:
    """Signs of a difference, by the target's calls or by the rows of the pairing."""

    def __init__(self, pairing: Pairing, measures: Measures) -> None:
        self.pairing, self.measures = pairing, measures
        self.calls = pairing.target.calls
        rows = pairing.rows
        self.differing = (
            (rows.target >= 0)
            & (rows.golden >= 0)
            & (rows.status != SAME)
            & (rows.status != UNKNOWN)
        )
        self.dead = dead_calls(pairing, 0, self.differing, self.overwritten)
        self.unequal = self.differing & ~self._of_dead if self.dead.any() else self.differing

    @property
    def _of_dead(self) -> Bools:
        """Rows that dead calls wrote or read, and those that others read of what they wrote."""
        dead, rows = np.append(self.dead, False), self.pairing.rows
        of_dead: Bools = dead[rows.target_call] | dead[self.producers[0]]
        return of_dead

    @cached_property
    def steep(self) -> Bools:
        """Calls of which a tiny change of what they read may make anything."""
        return self.pairing.target.which(self.calls.op, lambda op: error_kind(op) == STEEP)

    @cached_property
    def arguments_differ(self) -> Bools:
        """Calls whose other arguments than tensors are not golden's."""
        match = self.pairing.match.target
        partner = np.maximum(match, 0)
        args = self.pairing.golden.calls.args
        if not len(args):
            return np.zeros(len(match), dtype=np.bool_)
        differ: Bools = (match >= 0) & (self.calls.args != args[partner])
        return differ

    @cached_property
    def random(self) -> Bools:
        """Calls that draw random numbers."""
        return self.pairing.target.which(self.calls.op, lambda op: traits_of(op).random)

    @cached_property
    def allocators(self) -> Bools:
        """Calls whose outputs hold nothing yet: how large they are is for their readers to say."""
        return self.pairing.target.which(self.calls.op, lambda op: traits_of(op).allocates)

    @cached_property
    def views(self) -> Bools:
        """Calls that only look at a tensor in another way: a difference begins at the first that
        computes with it.

        Where versions are recorded, what a view writes bears the version of what it views, and that
        call is found by itself.
        """
        views: Bools = (
            self.pairing.target.which(self.calls.op, lambda op: traits_of(op).view)
            & ~self.arguments_differ
        )
        return views

    @cached_property
    def producers(self) -> tuple[Ints, Ints]:
        """Producers on either side of each row's tensors."""
        rows = self.pairing.rows
        producers = []
        for flow, column in zip(self.pairing.flows, (rows.target, rows.golden), strict=True):
            producer = (
                flow.producer[np.maximum(column, 0)]
                if len(flow.producer)
                else np.full(len(column), NONE)
            )
            producers.append(np.where(column >= 0, producer, NONE))
        return producers[0], producers[1]

    @cached_property
    def matched_producer(self) -> Bools:
        """Rows whose tensors come from calls that are partners."""
        mine, theirs = self.producers
        match = self.pairing.match.target
        if not len(match):
            return np.zeros(len(mine), dtype=np.bool_)
        paired: Bools = (mine >= 0) & (match[np.maximum(mine, 0)] == theirs) & (theirs >= 0)
        return paired

    @cached_property
    def outside(self) -> Bools:
        """Rows that no recorded call produced, on either side."""
        outside: Bools = (self.producers[0] < 0) & (self.producers[1] < 0)
        return outside

    @cached_property
    def begins_forward(self) -> Bools:
        """The forward calls of the first step of their rank."""
        calls, of_first_step = self.calls, np.zeros(len(self.calls), dtype=np.bool_)
        for rank in distinct(calls.rank).tolist():
            here = calls.rank == rank
            of_first_step |= here & (calls.step == calls.step[np.argmax(here)])
        return of_first_step & self.pairing.target.in_phase("forward")

    @cached_property
    def owned(self) -> Bools:
        """Rows of parameters, by their role on a side or by a parameter's content (an API that
        reads what its module owns).
        """
        rows, flow = self.pairing.rows, self.pairing.flows[0]
        mine, theirs = self.pairing.target.tensors, self.pairing.golden.tensors
        owned = flags_at(mine.parameter, rows.target) | flags_at(theirs.parameter, rows.golden)
        known = distinct(flow.state[mine.parameter & (flow.state != 0)])
        return owned | flags_at(np.isin(flow.state, known), rows.target) if len(known) else owned

    @cached_property
    def viewed_otherwise(self) -> Bools:
        """Rows that read the same named tensor on both sides, shaped or turned otherwise."""
        otherwise = np.zeros(len(self.pairing.rows), dtype=np.bool_)
        if not len(self.pairing.target.tensors) or not len(self.pairing.golden.tensors):
            return otherwise
        for part in _blocks(len(otherwise)):
            otherwise[part] = self._viewed_otherwise(part)
        return otherwise

    def _viewed_otherwise(self, part: slice) -> Bools:
        mine, theirs = self.pairing.target.tensors, self.pairing.golden.tensors
        left, right = self.pairing.rows.target[part], self.pairing.rows.golden[part]
        otherwise: Bools = (left >= 0) & (right >= 0) & (mine.named[left] != 0)
        chosen = np.flatnonzero(otherwise)
        left, right = left[chosen], right[chosen]
        turned = (mine.shape[left] != theirs.shape[right]) | (
            mine.stride[left] != theirs.stride[right]
        )
        otherwise[chosen] = (
            turned
            & (mine.named[left] == theirs.named[right])
            & (mine.l2norm[left] == theirs.l2norm[right])
            & (mine.sorted_shape[left] == theirs.sorted_shape[right])
        )
        return otherwise

    def identities(self, chosen: Ints) -> Words:
        """A hash of what makes two rows the same difference: the version on the target's side, else
        the states on both.
        """
        hashes = np.empty(len(chosen), dtype=np.uint64)
        for part in _blocks(len(chosen)):
            hashes[part] = self._identities(chosen[part])
        return hashes

    def _identities(self, chosen: Ints) -> Words:
        rows, flows, tensors = self.pairing.rows, self.pairing.flows, self.pairing.target.tensors
        left, right = rows.target[chosen], rows.golden[chosen]
        process, version = self.calls.process[tensors.call[left]], tensors.version[left]
        hashes = mixed(process.view(np.uint64), version.view(np.uint64))
        unknown = np.flatnonzero(version < 0)
        hashes[unknown] = mixed(flows[0].state[left[unknown]], flows[1].state[right[unknown]])
        return hashes

    @cached_property
    def first_computed(self) -> Ints:
        """For each call the first of its rank, views apart, with an output that is not equal; the
        number of calls where none is.
        """
        first = np.full(len(self.calls), len(self.calls), dtype=np.int64)
        for rank, calls in self.differences.items():
            computed = calls[~self.views[calls]]
            if len(computed):
                first[self.calls.rank == rank] = computed[0]
        return first

    @cached_property
    def unexplained(self) -> Ints:
        """Input rows that differ by more than a change of type, and whose producers are not one
        matched pair.
        """
        rows = self.pairing.rows
        mine, theirs = self.pairing.target.tensors, self.pairing.golden.tensors
        inputs = np.flatnonzero(self.unequal & ~rows.output)
        if not len(inputs):
            return inputs
        inputs = inputs[~self.matched_producer[inputs] & ~self.overwritten[inputs]]
        alike = mine.dtype[rows.target[inputs]] == theirs.dtype[rows.golden[inputs]]
        outside = self.outside[inputs]
        # Without versions, what was shaped otherwise between two recorded calls has no producer
        # either: only a parameter surely has none.
        sure = (mine.version[rows.target[inputs]] >= 0) | mine.parameter[rows.target[inputs]]
        error = rows.error[inputs]
        large = error > np.where(
            alike & outside & sure, 0.0, _COARSE * np.minimum(rows.roundoff[inputs], 0.05 / _COARSE)
        )
        large |= self._drifts(inputs) & alike & ~outside
        whole = (
            self.pairing.flows[0].whole[rows.target[inputs]]
            & self.pairing.flows[1].whole[rows.golden[inputs]]
        )
        chosen: Ints = inputs[large | (alike & outside & whole)]
        return chosen

    def _drifts(self, chosen: Ints) -> Bools:
        """Rows whose norms are further apart than rounding makes them: it is an average over
        elements, a factor is not.
        """
        rows, (mine, theirs) = (
            self.pairing.rows,
            (self.pairing.target.tensors, self.pairing.golden.tensors),
        )
        left, right = mine.l2norm[rows.target[chosen]], theirs.l2norm[rows.golden[chosen]]
        size = np.maximum(theirs.size[rows.golden[chosen]], 1)
        bound = np.maximum(
            _COARSE * 2.0**-24, rows.roundoff[chosen] * (_SYSTEMATIC + _COARSE / np.sqrt(size))
        )
        with np.errstate(invalid="ignore"):
            drifts: Bools = np.abs(left - right) > bound * np.maximum(left, right)
        return drifts

    def drifts_alone(self, row: int) -> bool:
        """Whether all that tells a row apart is its norm: it is no further off than a few roundings
        may be.
        """
        return bool(
            self.pairing.rows.error[row] <= min(_COARSE * self.pairing.rows.roundoff[row], 0.05)
        )

    @cached_property
    def overwritten(self) -> Bools:
        """Input rows that their call fills whatever they held: memory that nobody wrote before
        holds anything.
        """
        filling = self.pairing.target.which(self.calls.op, fills)
        rows, overwritten = self.pairing.rows, np.zeros(len(self.pairing.rows), dtype=np.bool_)
        if not filling.any():
            return overwritten
        chosen = np.flatnonzero(
            ~rows.output & (rows.target >= 0) & filling[np.maximum(rows.target_call, 0)]
        )
        first = np.searchsorted(self.pairing.target.tensors.call, rows.target_call[chosen])
        overwritten[chosen] = rows.target[chosen] == first
        return overwritten

    @cached_property
    def differences(self) -> dict[int, Ints]:
        """For each rank the target's calls with an output that is not equal, in order."""
        rows = self.pairing.rows
        calls = rows.target_call[np.flatnonzero(self.unequal & rows.output)]
        calls = distinct(calls[self.calls.leaf[calls]]) if len(calls) else calls
        ranks = self.calls.rank[calls]
        return {rank: calls[ranks == rank] for rank in distinct(ranks).tolist()}

    @cached_property
    def first_difference(self) -> dict[int, int]:
        """For each rank the first target call with an output that is not equal."""
        return {rank: int(calls[0]) for rank, calls in self.differences.items()}

    def differing_before(self, call: int) -> Iterator[int]:
        """The calls of its rank before a call whose outputs are not equal."""
        calls = self.differences.get(int(self.calls.rank[call]), np.empty(0, dtype=np.int64))
        for at in range(int(np.searchsorted(calls, call))):
            yield int(calls[at])

    @cached_property
    def named_again(self) -> Bools:
        """Views of which an output bears the version of an input."""
        named_again = np.zeros(len(self.calls), dtype=np.bool_)
        if self.views.any():
            named_again[
                self.pairing.target.tensors.call[aliases(self.calls, self.pairing.target.tensors)]
            ] = True
        return named_again & self.views

    def rows_of(self, call: int) -> range:
        """The rows of a call of the target."""
        first, last = np.searchsorted(self._row_calls, [call, call + 1]).tolist()
        return range(first, last)

    @cached_property
    def _row_calls(self) -> Ints:
        calls = self.pairing.rows.target_call
        return np.where(calls >= 0, calls, np.iinfo(calls.dtype).max)

    def earlier_difference(self, call: int) -> bool:
        """Whether anything of the same rank differed before this call."""
        first = self.first_difference.get(int(self.calls.rank[call]))
        return first is not None and first < call

    def noise(self, call: int) -> float:
        """How far apart half of the results are that stand before a call in its step and rank; 0
        where none does.
        """
        results = self._results.get((int(self.calls.rank[call]), int(self.calls.step[call])))
        return results[1].of(int(np.searchsorted(results[0], call))) if results is not None else 0.0

    @cached_property
    def _results(self) -> dict[tuple[int, int], tuple[Array, Medians]]:
        """By rank and step the calls of all results that were compared, in their order, and the
        medians of their errors.
        """
        rows, calls = self.pairing.rows, self.calls
        chosen = np.flatnonzero(
            rows.output & (rows.target >= 0) & (rows.golden >= 0) & np.isfinite(rows.error)
        )
        owner = rows.target_call[chosen]
        place = np.stack([calls.rank[owner], calls.step[owner]])
        begins = (
            np.flatnonzero(np.r_[True, (place[:, 1:] != place[:, :-1]).any(axis=0)])
            if len(owner)
            else np.empty(0, dtype=np.int64)
        )
        results = {}
        for start, stop in pairwise([*begins.tolist(), len(owner)]):
            rank, step = place[:, start].tolist()
            results[rank, step] = owner[start:stop], Medians(rows.error[chosen[start:stop]])
        return results

    @cached_property
    def sure(self) -> Bools:
        """Rows whose contents are known to be the same element by element: statistics alone may
        hide that elements changed places.
        """
        rows, (mine, theirs) = self.pairing.rows, self.pairing.flows
        sure: Bools = (rows.target >= 0) & (rows.golden >= 0)
        both = np.flatnonzero(sure)
        left, right = rows.target[both], rows.golden[both]
        sure[both] = (
            mine.whole[left] & theirs.whole[right] & (mine.state[left] == theirs.state[right])
        )
        return sure

    def guessed(self, call: int) -> list[int]:
        """The rows that a call reads and that only statistics call equal."""
        rows = self.pairing.rows
        return [
            row
            for row in self.rows_of(call)
            if not rows.output[row] and rows.error[row] == 0 and not self.sure[row]
        ]

    def blurred(self, call: int) -> bool:
        """Whether what a call reads is equal by statistics alone, while its run has gone apart
        before: it is as close as the rest.
        """
        return bool(self.guessed(call)) and self.earlier_difference(call)

    def vague(self, call: int) -> bool:
        """Whether the statistics of what a blurred call reads hold no norm (a mask, infinite
        scores), and so say next to nothing.
        """
        norms, target_rows = self.pairing.target.tensors.l2norm, self.pairing.rows.target
        return self.earlier_difference(call) and any(
            not np.isfinite(norms[target_rows[row]]) for row in self.guessed(call)
        )


def fills(op: str) -> bool:
    """Whether an operator writes over what its first argument held."""
    known = traits_of(op)
    return works_in_place(op) and (bool(known.overwrites) or known.random)
