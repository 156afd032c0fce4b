# SPDX-License-Identifier: Apache-2.0
"""One program followed back, from what matters through tensors that meet nothing on the other side,
to the calls at which that begins.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache, cached_property
from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.pair.meetings import first_read
from opscope.compare.side.columns import NONE, place_of
from opscope.operators.catalogue import traits_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side

LEAST = 4  # elements of a tensor that agrees by more than chance
MAX_REGION = 256
MAX_AROUND = 2
MAX_ABOVE = 200  # calls that build a constant
OF_CONSTANTS, OF_PARAMETERS, OF_DATA = range(3)


class Walk:
    """What matters on one side and meets nothing, followed back through what does not either."""

    def __init__(
        self,
        pairing: Pairing,
        number: int,
        flags: tuple[NDArray[np.bool_], NDArray[np.bool_]],
        ends: list[int],
    ) -> None:
        self._side = (pairing.target, pairing.golden)[number]
        self._flow = pairing.flows[number]
        self._unmet, self._dim = flags
        self._first = first_read(self._side)
        self.given: dict[int, int] = {}  # rows that differ and came from outside, by their readers
        self._above: dict[int, set[int]] = {}
        self._follow(ends)

    def _follow(self, ends: list[int]) -> None:
        tensors, calls = self._side.tensors, self._side.calls
        waiting = [int(tensors.call[row]) for row in ends]
        steps = {int(calls.step[call]) for call in waiting}
        while waiting:
            call = waiting.pop()
            if call in self._above:
                continue
            above = self._above[call] = set[int]()
            for row in inputs_of(self._side, call):
                producer = int(self._flow.producer[row])
                if not self._unmet[row] and not self._dim[row]:
                    continue
                own = self._loaded(row, producer)
                if producer >= 0 and int(calls.step[producer]) in steps and not own:
                    above.add(producer)
                elif own and self._unmet[row] and not self._dim[row]:
                    self.given.setdefault(call, row)
            waiting.extend(above)

    def _loaded(self, row: int, producer: int) -> bool:
        """Whether a row is of a parameter as it was when a model first read it."""
        tensors = self._side.tensors
        first = self._first.get(int(tensors.named[row])) if tensors.parameter[row] else None
        return first is not None and producer <= tensors.call[first]

    @cached_property
    def _readers(self) -> dict[int, list[int]]:
        """Calls of the walk's first to last that read what others wrote, by those."""
        tensors, calls = self._side.tensors, self._side.calls
        first, last = min(self._above), max(self._above)
        begin, end = np.searchsorted(tensors.call, [first, last + 1]).tolist()
        found: dict[int, list[int]] = defaultdict(list)
        rows = np.arange(begin, end)
        rows = rows[
            ~tensors.output[rows]
            & (self._unmet[rows] | self._dim[rows])
            & (self._flow.producer[rows] >= first)
            & calls.leaf[tensors.call[rows]]
        ]
        for row in rows.tolist():
            found[int(self._flow.producer[row])].append(int(tensors.call[row]))
        return found

    def starts(self) -> list[int]:
        """Calls of the walk, in their order, that read nothing of it and whose results agree
        nowhere with anything again; those that compute with data first, then those that prepare
        parameters or build constants: one side may do that otherwise, or not at all.
        """
        bright = self._bright
        found, below = list[int](), set[int]()  # below: what reads something of the walk, by and by
        for call, above in sorted(self._above.items()):
            if any(self._tells(one, call) for one in above & (below | bright)):
                below.add(call)
            if (call in self.given and not above & bright) or (
                call in bright and call not in below
            ):
                found.append(call)
        kept = [call for call in found if not self._heals(call)]
        return sorted(kept, key=self._reads, reverse=True) or found[-1:] or [self.last]

    def preparing(self, starts: list[int]) -> list[int]:
        """Those of starts that compute with parameters alone, as a mean of weights does."""
        return [call for call in starts if call >= 0 and self._reads(call) == OF_PARAMETERS]

    def _tells(self, call: int, reader: int) -> bool:
        """Whether what a call makes otherwise is why its reader does: a constant is no fault by
        itself, nor is a parameter that is prepared for what reads data.
        """
        return self._reads(call) >= max(self._reads(reader), OF_PARAMETERS)

    @cache  # noqa: B019 - a walk lives as long as its question
    def _reads(self, call: int) -> int:
        """Of what a call computes: constants, parameters as well, or what the program was given."""
        waiting, seen, found = [call], set[int](), OF_CONSTANTS
        while waiting and len(seen) < MAX_ABOVE:
            at = waiting.pop()
            if at in seen:
                continue
            seen.add(at)
            for row in inputs_of(self._side, at):
                producer = int(self._flow.producer[row])
                if self._side.tensors.parameter[row]:
                    found = OF_PARAMETERS
                elif (
                    producer < 0 and self._side.tensors.size[row] != 1
                ):  # one number is written down
                    return OF_DATA
                else:
                    waiting.append(producer)
        return found if len(seen) < MAX_ABOVE else OF_DATA

    @cached_property
    def _bright(self) -> set[int]:
        """Calls of the walk of which something differs, not only something that nobody can tell."""
        found = set[int]()
        for call in sorted(self._above):
            told = [row for row in outputs_of(self._side, call) if not self._dim[row]]
            if any(self._unmet[row] for row in told) or (self._above[call] & found):
                found.add(call)
        return found

    def _heals(self, start: int) -> bool:
        waiting, seen = [start], set[int]()
        while waiting:
            call = waiting.pop()
            if call in seen:
                continue
            seen.add(call)
            for reader in self._readers.get(call, ()):
                if self._agrees(reader):
                    return True
                waiting.append(reader)
        return False

    def _agrees(self, call: int) -> bool:
        """Whether what a call writes agrees, by more than chance, with something of the other
        side.
        """
        tensors = self._side.tensors
        return any(
            not self._unmet[row]
            and not self._dim[row]
            and tensors.size[row] >= LEAST
            and tensors.min[row] < tensors.max[row]
            and tensors.min_int[row] == np.iinfo(np.int64).min
            for row in outputs_of(self._side, call)
        )

    @property
    def last(self) -> int:
        """The last call of the walk."""
        return max(self._above, default=NONE)

    def _around(self, start: int) -> list[int]:
        """The calls that made what a start reads, and those of the modules that were given it."""
        calls, tensors = self._side.calls, self._side.tensors
        rows = [
            row
            for row in inputs_of(self._side, start)
            if not tensors.parameter[row] and calls.phase[start] == calls.phase[0]
        ]
        made = {self._computed(int(self._flow.producer[row])) for row in rows} - {NONE}
        made |= {
            self._computed(int(self._flow.producer[row]))
            for call in made
            for row in inputs_of(self._side, call)
            if self._dim[row] and not tensors.parameter[row]
        } - {NONE}
        versions = {int(tensors.version[row]) for row in rows}
        found, at = sorted(made)[-MAX_AROUND:], start
        while calls.parent[at] >= 0 and len(found) < 2 * MAX_AROUND:
            at = int(place_of((calls.process[[at]] << 40) | calls.parent[[at]], calls.key)[0])
            given = {int(tensors.version[row]) for row in inputs_of(self._side, at)}
            if at < 0 or not given & versions:
                break
            found.append(at)
        return found

    def _computed(self, call: int) -> int:
        """A call, or what computed that of which it is a view or a copy."""
        side = self._side
        while call >= 0 and traits_of(side.operator(call)).idle:
            rows = inputs_of(side, call)
            if len(rows) != 1 or self._flow.producer[rows[0]] < 0:
                break
            call = int(self._flow.producer[rows[0]])
        return call

    def head(self, start: int) -> set[int]:
        """Names of the parameters that a start reads, as they are or prepared by other calls."""
        waiting, seen = [start], set[int]()
        while waiting:
            call = waiting.pop()
            seen.add(call)
            waiting.extend(
                above
                for above in self._above.get(call, set()) - seen
                if self._reads(above) == OF_PARAMETERS
            )
        return {name for call in seen for name in self._names(call)}

    def _names(self, call: int) -> set[int]:
        tensors = self._side.tensors
        return {
            int(tensors.named[row])
            for row in inputs_of(self._side, call)
            if tensors.parameter[row] and tensors.named[row]
        }

    def region(self, start: int, read: set[int]) -> tuple[int, ...]:
        """The start, and the calls of the walk that follow it, up to those that compute with other
        parameters than some that were read.
        """
        reached, found = {start}, [start, *self._around(start)]
        phase = self._side.calls.phase
        for call in sorted(self._above):
            if call > start and self._above[call] & reached and phase[call] == phase[start]:
                if self._names(call) - read:
                    continue
                reached.add(call)
                found.append(call)
        return tuple(found[:MAX_REGION])


def _rows(side: Side, call: int) -> range:
    first, last = np.searchsorted(side.tensors.call, [call, call + 1]).tolist()
    return range(first, last)


def inputs_of(side: Side, call: int) -> list[int]:
    """The rows of what a call reads."""
    return [row for row in _rows(side, call) if not side.tensors.output[row]]


def outputs_of(side: Side, call: int) -> list[int]:
    """The rows of what a call writes."""
    return [row for row in _rows(side, call) if side.tensors.output[row]]


def given_to(side: Side, call: int) -> list[int]:
    """The rows of what a call reads that is no parameter."""
    return [row for row in inputs_of(side, call) if not side.tensors.parameter[row]]
