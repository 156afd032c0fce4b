# SPDX-License-Identifier: Apache-2.0
"""One program followed back, from what matters through tensors that meet nothing on the other side,
to the calls at which that begins.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache, cached_property
from itertools import count, islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from opscope.compare.pair.crops import WRITTEN
from opscope.compare.pair.meetings import normed
from opscope.compare.pair.parameters import first_read, learnt_names
from opscope.compare.side.call_rows import handed_on, inputs_of, outputs_of, parameters_of
from opscope.compare.side.columns import ABSENT
from opscope.operators.catalogue import traits_of
from opscope.run.hashes import distinct
from opscope.run.keys import NONE, place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opscope.arrays import Bools, Words
    from opscope.compare.pair.pairing import Pairing

LEAST = 4  # elements of a tensor that agrees by more than chance
NORM = 8  # calls of which a norm is written out, one after the other
MAX_REGION = 256
MAX_AROUND = 2
MAX_VIEWS = 3
MAX_ORDERING = 8
MAX_TIED = 4
NEAR = 8  # calls after a start, that its region goes on to
MAX_UNSEEN = 6  # calls above a start of which statistics tell nothing
MAX_ABOVE = 200  # calls that build a constant
OF_CONSTANTS, OF_PARAMETERS, OF_DATA = range(3)
Computation = tuple[int, ...]  # operator, arguments and contents that are read, as hashes


class Marks(NamedTuple):
    """What is known of each row of a side: whether it meets nothing on the other, whether its
    statistics tell nothing, whether it agrees with something or with its negative, whether it holds
    the very elements of something, and whether it agrees but for zeros that it has besides; and
    whether rows count as agreeing that do so in part.
    """

    unmet: Bools
    dim: Bools
    agreeing: Bools
    same: Bools
    scattered: Bools
    partly: bool


class Walk:
    """What matters on one side and meets nothing, followed back through what does not either."""

    def __init__(
        self,
        pairing: Pairing,
        number: int,
        marks: Marks,
        ends: list[int],
        *,
        backward: bool | None,
        updating: bool = False,
    ) -> None:
        self._updating = updating  # whether it begins in what an update leaves
        self._side = (pairing.target, pairing.golden)[number]
        self._flow = pairing.flows[number]
        self._unmet, self._dim, self._agreeing, self._same, self._scattered, self._partly = marks
        self._backward = backward  # whether it begins in a backward pass; None: not known
        self._read_first = first_read(self._side)
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
                elif own and self._unmet[row] and not (self._dim[row] or self._merged(producer)):
                    self.given.setdefault(call, row)
            waiting.extend(above)

    def _loaded(self, row: int, producer: int) -> bool:
        """Whether a row is of a parameter as it was when a model first read it, not as the call
        that did so left it, or an update: an average of weights is first read when it is evaluated.
        """
        tensors = self._side.tensors
        first = self._read_first.get(int(tensors.named[row])) if tensors.parameter[row] else None
        trained = self._updating and producer > self._first_backward
        return first is not None and producer < tensors.call[first] and not trained

    @cached_property
    def _first_backward(self) -> int:
        """The first call of a backward pass."""
        side = self._side
        backward = side.in_phase("backward")
        return int(np.argmax(backward)) if backward.any() else len(backward)

    def _merged(self, producer: int) -> bool:
        """Whether what was loaded into a parameter is computed of what the other side has, too: one
        bias that stands for two.
        """
        rows = inputs_of(self._side, producer) if producer >= 0 else []
        made = self._makers(rows)
        read = [
            inputs_of(self._side, call)
            for call in made
            if not (traits_of(op := self._side.operator(call)).idle or traits_of(op).random)
        ]
        return any(len(few) > 1 and not self._unmet[few].any() for few in read)

    @cached_property
    def _readers(self) -> dict[int, list[int]]:
        return self._read_by(whole=False)

    @cached_property
    def _readers_of_all(self) -> dict[int, list[int]]:
        return self._read_by(whole=True)

    def _read_by(self, *, whole: bool) -> dict[int, list[int]]:
        """Calls of the walk's first to last that read what others wrote, by those; whole: integers,
        too.
        """
        tensors, calls = self._side.tensors, self._side.calls
        first, last = min(self._above, default=0), max(self._above, default=0)
        begin, end = np.searchsorted(tensors.call, [first, last + 1]).tolist()
        readers: dict[int, list[int]] = defaultdict(list)
        rows = np.arange(begin, end)
        rows = rows[
            ~tensors.output[rows]
            & (self._unmet[rows] | self._dim[rows])
            & (whole | ~self._whole[rows])
            & (self._flow.producer[rows] >= first)
            & calls.leaf[tensors.call[rows]]
        ]
        for row in rows.tolist():
            readers[int(self._flow.producer[row])].append(int(tensors.call[row]))
        return readers

    def starts(self) -> list[int]:
        """Calls of the walk that read nothing of it: those from which a model computes first, then
        those of other data, each with those first of which nothing agrees again, in their order;
        last those that prepare parameters or build constants, which one side may do otherwise, or
        not at all: only if nothing agrees again.
        """
        lasting, healed = self._first
        firsts = sorted(lasting, key=self.order, reverse=True) or healed[-1:] or [self.last]
        return list(dict.fromkeys(map(self._handed, firsts)))

    @cached_property
    def _first(self) -> tuple[list[int], list[int]]:
        """Calls of the walk that read nothing of it, in their order; apart from them those that
        prepare or build something, and of which something agrees again.
        """
        bright, lasting = self._bright, list[int]()
        below, healed = set[int](), set[int]()  # below: what reads something of the walk, by and by
        for call, above in sorted(self._above.items()):
            if any(self._tells(producer, call) for producer in (above - healed) & (below | bright)):
                below.add(call)
            if (call in self.given and not above & bright) or (
                call in bright and call not in below
            ):
                heals = self._reads(call) != OF_DATA and self._heals(call)
                (healed.add if heals else lasting.append)(call)
        return lasting, sorted(healed)

    def _handed(self, start: int) -> int:
        """A start, or what computed the gradient that a start only hands to its parameter."""
        calls, made = self._side.calls, self._computed(start)
        backward = made >= 0 and self._side.words.get(int(calls.phase[made])) == "backward"
        return made if backward and traits_of(self._side.operator(start)).idle else start

    def order(self, call: int) -> tuple[bool, int, bool]:
        """Whether a start is where the two may part: in a backward pass where gradients part and
        losses do not, else outside; its weight, and whether nothing agrees again that comes of it.
        """
        backward = self._side.words.get(int(self._side.calls.phase[call])) == "backward"
        return self._backward in (None, backward), self.weight(call), not self._heals(call)

    def begins_behind(self, starts: list[int]) -> bool:
        """Whether all of starts that compute with what the program was given are in a backward
        pass.
        """
        within = [of for of, weight, _ in map(self.order, starts) if weight >= OF_DATA]
        return bool(within) and all(within)

    def weight(self, call: int) -> int:
        """What a start computes with, as told above; most where a model goes on to compute from it,
        as it does not from the labels of a loss, and nothing agrees again.
        """
        reads = self._reads(call)
        deep = reads == OF_DATA and call in self._deep and not self._heals(call)
        return reads + 1 if deep else reads

    @cached_property
    def _deep(self) -> set[int]:
        """Calls of the walk that compute with parameters, and those from which they do."""
        deep = set[int]()
        for call, above in sorted(self._above.items(), reverse=True):
            if call in deep or self._computes_with_parameters(call):
                deep.add(call)
                deep |= above
        return deep

    @cached_property
    def learnt(self) -> Words:
        """Names of parameters that get gradients."""
        return learnt_names(self._side)

    @cached_property
    def _trained(self) -> Words:
        """Names of what gets gradients; of all parameters where nothing does."""
        tensors = self._side.tensors
        return self.learnt if len(self.learnt) else distinct(tensors.named[tensors.parameter])

    def _computes_with_parameters(self, call: int) -> bool:
        rows, tensors = inputs_of(self._side, call), self._side.tensors
        if (tensors.parameter[rows] & np.isin(tensors.named[rows], self._trained)).any():
            return True
        producers = [int(self._flow.producer[row]) for row in rows if not tensors.parameter[row]]
        return any(
            producer >= 0 and self._reads(producer) == OF_PARAMETERS for producer in producers
        )

    def preparing(self, starts: list[int], reader: int) -> list[int]:
        """Those of starts that compute with parameters alone, as a mean of weights does, and of
        which a reader reads what comes of them.
        """
        above = self._all_above(reader)
        return [call for call in starts if call in above and self.prepares(call)]

    def prepares(self, start: int) -> bool:
        """Whether a start computes with parameters alone."""
        return start >= 0 and self._reads(start) == OF_PARAMETERS

    def outside(self, call: int) -> set[int]:
        """Numbers of elements of what a call was given from outside and meets nothing."""
        tensors = self._side.tensors
        return {
            int(tensors.size[row])
            for row in inputs_of(self._side, call)
            if self._flow.producer[row] < 0 and self._unmet[row] and not self._dim[row]
            if tensors.size[row] > 1 and not tensors.parameter[row]
        }

    def building(self, starts: list[int], reader: int) -> dict[int, list[int]]:
        """Those of starts that build a constant which a reader computes with at once and which
        meets nothing, by its number of elements, of complex numbers of their parts.
        """
        builders: dict[int, list[int]] = {}
        for row in inputs_of(self._side, reader) if reader >= 0 else ():
            maker = int(self._flow.producer[row])
            differs = maker >= 0 and self._unmet[row] and not self._dim[row]
            if differs and self._reads(maker) < OF_DATA:
                parts = self._side.words.get(int(self._side.tensors.dtype[row]), "")
                size = int(self._side.tensors.size[row]) * (2 if parts.startswith("complex") else 1)
                builders[size] = [call for call in starts if call in self._all_above(maker)]
        return {size: calls for size, calls in builders.items() if calls}

    def _all_above(self, reader: int) -> set[int]:
        """A call of the walk and all of it that it computes from."""
        above, waiting = set[int](), [reader]
        while waiting:
            call = waiting.pop()
            if call not in above:
                above.add(call)
                waiting.extend(self._above.get(call, ()))
        return above

    def _tells(self, call: int, reader: int) -> bool:
        """Whether what a call makes otherwise is why its reader does: a constant is no fault by
        itself, nor is a parameter that is prepared for what reads data, but by an update.
        """
        least = OF_PARAMETERS if self._updating else max(self._reads(reader), OF_PARAMETERS)
        return self._reads(call) >= least

    @cached_property
    def _reads(self) -> Callable[[int], int]:
        """Of what a call computes: constants, parameters as well, or what the program was given."""
        return cache(self._computed_from)

    def _computed_from(self, call: int) -> int:
        waiting, seen, source = [call], set[int](), OF_CONSTANTS
        while waiting and len(seen) < MAX_ABOVE:
            at = waiting.pop()
            if at in seen:
                continue
            seen.add(at)
            if traits_of(self._side.operator(at)).random:
                return OF_DATA
            for row in inputs_of(self._side, at):
                producer = int(self._flow.producer[row])
                if self._side.tensors.parameter[row] and producer not in self._above:
                    source = OF_PARAMETERS
                elif (
                    producer < 0 and self._side.tensors.size[row] != 1
                ):  # one number is written down
                    return OF_DATA
                else:
                    waiting.append(producer)
        return source if len(seen) < MAX_ABOVE else OF_DATA

    @cached_property
    def _bright(self) -> set[int]:
        """Calls of the walk of which something differs, not only something that nobody can tell."""
        bright = set[int]()
        for call in sorted(self._above):
            telling = [row for row in outputs_of(self._side, call) if not self._dim[row]]
            if any(self._unmet[row] for row in telling) or (self._above[call] & bright):
                bright.add(call)
        return bright

    @cached_property
    def _heals(self) -> Callable[[int], bool]:
        """Whether something agrees again that is computed from what a start makes, or from what
        another call does that computes the same: a count of a mask that each layer takes anew.
        """
        again = cache(self._agrees_again)
        return cache(lambda start: again(start) or any(map(again, self._twins(start))))

    def _twins(self, start: int) -> list[int]:
        """Other calls of one operator that read the very same, among the walk's first to last."""
        return [
            call for call in self._computed_alike.get(self._computation(start), ()) if call != start
        ]

    @cached_property
    def _computed_alike(self) -> dict[Computation, list[int]]:
        alike: dict[Computation, list[int]] = defaultdict(list)
        first, last = min(self._above, default=0), max(self._above, default=NONE)
        leaf = self._side.calls.leaf
        for call in range(first, last + 1):
            if leaf[call]:
                alike[self._computation(call)].append(call)
        return alike

    def _computation(self, call: int) -> Computation:
        """The operator of a call, its arguments and the contents that it reads."""
        calls, state = self._side.calls, self._flow.state
        read = [int(state[row]) for row in inputs_of(self._side, call)]
        return int(calls.op[call]), int(calls.args[call]), *(read or [-1 - call])

    def _agrees_again(self, start: int) -> bool:
        # A choice may be the same though what it was made by is not.
        whole = bool(self._whole[outputs_of(self._side, start)].all())
        known = self._readers_of_all if whole else self._readers
        parts = self._packed(start, known)
        return all(self._some_agree(set(readers), known) for readers in parts)

    def _packed(self, start: int, known: dict[int, list[int]]) -> list[list[int]]:
        """The readers of what a call makes, by the part of it that they read, as of queries, keys
        and values that are one product: of each something must agree again.
        """
        tensors, calls = self._side.tensors, self._side.calls
        most = max((int(tensors.size[row]) for row in outputs_of(self._side, start)), default=0)
        handed, parts = [start], dict[int, list[int]]()
        for call in handed:  # grows by what only hands on
            for reader in known.get(call, ()):
                idle = traits_of(self._side.operator(reader)).idle
                if idle and reader not in handed:
                    handed.append(reader)
                if idle or calls.phase[reader] != calls.phase[start]:
                    continue
                for row in inputs_of(self._side, reader):
                    differs = self._unmet[row] and not self._dim[row] and tensors.size[row] < most
                    if differs and self._flow.producer[row] == call:
                        parts.setdefault(int(self._flow.state[row]), []).append(reader)
        return list(parts.values()) if len(parts) > 1 else [known.get(start, [])]

    def _some_agree(self, readers: set[int], known: dict[int, list[int]]) -> bool:
        """Whether what some calls make agrees, or what is computed from it."""
        seen = set(readers)
        for steps in count(1):
            if any(self._agrees(reader, near=steps <= NORM) for reader in readers):
                return True
            readers = {reader for call in readers for reader in known.get(call, ())} - seen
            if not readers:
                return False
            seen |= readers
        return False

    def _agrees(self, call: int, *, near: bool) -> bool:
        """Whether the largest of what a call writes agrees, by more than chance, with something of
        the other side; means and deviations beside it may agree by themselves, and what a norm
        makes agrees for that of a start that may be part of the norm, near, alone.
        """
        tensors = self._side.tensors
        rows = [row for row in outputs_of(self._side, call) if not self._dim[row]]
        most = max((int(tensors.size[row]) for row in rows), default=0)
        largest = [row for row in rows if tensors.size[row] == most]
        return bool(self._agreeing[largest].all()) and any(
            (self._same[row] or (not self._whole[row] and self._telling(row)))
            and (near or not self._normed[row])
            for row in largest
        )

    def _telling(self, row: int) -> bool:
        """Whether a row that agrees does so by more than chance: several numbers, or one that no
        program writes down.
        """
        tensors = self._side.tensors
        if tensors.size[row] >= LEAST:
            return bool(tensors.min[row] < tensors.max[row])
        return bool(tensors.max[row] * WRITTEN % 1)

    @cached_property
    def _normed(self) -> Bools:
        return normed(self._side)

    @cached_property
    def _whole(self) -> Bools:
        """Rows of integers."""
        integers: Bools = self._side.tensors.min_int != ABSENT
        return integers

    @property
    def last(self) -> int:
        """The last call of the walk."""
        return max(self._above, default=NONE)

    def _around(self, start: int) -> list[int]:
        """The calls that made what a start reads, those above it of which nobody can tell, and
        those of the modules that were given it.
        """
        calls, tensors = self._side.calls, self._side.tensors
        rows = [
            row
            for row in inputs_of(self._side, start)
            if not tensors.parameter[row] and calls.phase[start] == calls.phase[0]
        ]
        made = self._makers(rows)
        moving = [call for call in made if traits_of(self._side.operator(call)).moves]
        moved = [row for call in moving for row in inputs_of(self._side, call)]
        made |= self._makers([*moved[:1], *(row for row in moved if self._whole[row])])
        made |= {
            self._computed(int(self._flow.producer[row]))
            for call in made
            for row in inputs_of(self._side, call)
            if self._dim[row] and not tensors.parameter[row]
        } - {NONE}
        versions = {int(tensors.version[row]) for row in rows}
        around, at = sorted(made)[-MAX_AROUND:], start
        while calls.parent[at] >= 0 and len(around) < 2 * MAX_AROUND:
            at = int(place_of((calls.process[[at]] << 40) | calls.parent[[at]], calls.key)[0])
            given = {int(tensors.version[row]) for row in inputs_of(self._side, at)}
            if at < 0 or not given & versions:
                break
            around.append(at)
        unseen = sorted(self._all_above(start) - self._bright - {start})[-MAX_UNSEEN:]
        order = *self._ordering(start), *self._views(start, rows)
        return [*around, *unseen, *self._scattering([start, *unseen]), *self._parts(rows), *order]

    def makers(self, call: int) -> list[int]:
        """The calls that computed what a call reads."""
        return sorted(self._makers(inputs_of(self._side, call)))

    def _makers(self, rows: Sequence[int]) -> set[int]:
        return {self._computed(int(self._flow.producer[row])) for row in rows} - {NONE}

    def _scattering(self, readers: Sequence[int]) -> list[int]:
        """The calls that put among zeros what some calls read and what agrees but for these, and
        those that made the masks and places for it: statistics do not tell where that is.
        """
        scattering = list[int]()
        waiting = [row for call in readers for row in inputs_of(self._side, call)]
        waiting = [row for row in waiting if self._scattered[row]]
        while waiting and len(scattering) < MAX_ORDERING:
            call = self._computed(int(self._flow.producer[waiting.pop(0)]))
            if call >= 0 and call not in scattering:
                scattering.append(call)
                read = inputs_of(self._side, call)
                waiting += [row for row in read if self._scattered[row] or self._dim[row]]
        return scattering

    def _parts(self, rows: Sequence[int]) -> list[int]:
        """The calls that took what a start reads out of something larger, as an unbind does: they
        write nothing, and which part they took may be the fault.
        """
        tensors, parts = self._side.tensors, list[int]()
        for row in rows:
            maker = int(self._flow.producer[row])
            sizes = tensors.size[outputs_of(self._side, maker)] if maker >= 0 else np.zeros(0)
            if not (sizes > tensors.size[row]).any():
                continue
            first, last = np.searchsorted(tensors.call, [maker + 1, tensors.call[row]])
            between = np.arange(first, last)
            same = [
                column[between] == column[row]
                for column in (tensors.version, tensors.shape, tensors.stride)
            ]
            views = between[tensors.output[between] & np.logical_and.reduce(same)]
            parts.extend(int(tensors.call[view]) for view in views[-1:])
        return parts

    def _ordering(self, start: int) -> list[int]:
        """The calls that put what a start reads in order, as a cat does: statistics do not tell
        whether it is golden's, which matters to all but what computes number by number of one.
        """
        ordering, seen = list[int](), {start}
        waiting = [] if self._alone(start) else [start]
        while waiting and len(ordering) < MAX_ORDERING and len(seen) < MAX_ABOVE:
            for row in inputs_of(self._side, waiting.pop(0)):
                call = int(self._flow.producer[row])
                if call < 0 or call in seen or self._side.tensors.parameter[row]:
                    continue
                seen.add(call)
                traits = traits_of(self._side.operator(call))
                orders = traits.moves or traits.idle
                if orders:
                    ordering.append(call)
                if orders or traits.pointwise:
                    waiting.append(call)
        return ordering

    def _combined_in_order(self, start: int) -> list[int]:
        """The calls that put in order what a start computes number by number, of one: that matters
        to the first that computes with it and with something else.
        """
        while self._alone(start) and (readers := self._readers.get(start)):
            start = min(readers)
        return self._ordering(start)

    def _alone(self, call: int) -> bool:
        """Whether a call computes number by number, of one."""
        pointwise = traits_of(self._side.operator(call)).pointwise
        return pointwise and len(inputs_of(self._side, call)) == 1

    def _views(self, start: int, read: Sequence[int]) -> list[int]:
        """The last calls that made views of what a start reads, where a reshape without its
        transposition exchanges what statistics do not tell apart.
        """
        tensors, producers = self._side.tensors, self._flow.producer[[*read]]
        made = [int(call) for call in producers if call >= 0]
        begin, end = np.searchsorted(tensors.call, [min(made, default=start), start]).tolist()
        rows = np.arange(begin, end)
        shared = np.isin(tensors.version[rows], tensors.version[[*read]]) & tensors.output[rows]
        calls = dict.fromkeys(tensors.call[rows[shared]].tolist())
        idle = [call for call in calls if traits_of(self._side.operator(call)).idle]
        return [call for call in idle if self._side.calls.leaf[call]][-MAX_VIEWS:]

    def _computed(self, call: int) -> int:
        """A call, or what computed that of which it is a view or a copy."""
        while call >= 0 and (row := handed_on(self._side, call)) != NONE:
            if self._flow.producer[row] < 0:
                break
            call = int(self._flow.producer[row])
        return call

    def head(self, start: int) -> set[int]:
        """Names of the trained parameters that a start reads, as they are or prepared."""
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
        names = tensors.named[parameters_of(self._side, call)]
        return set(names[np.isin(names, self._trained) & (names != 0)].tolist())

    def region(
        self, start: int, read: set[int], starts: Sequence[int], *, beyond: bool
    ) -> tuple[int, ...]:
        """The start and the calls of the walk that follow it, up to those that compute with other
        parameters than some that were read; then others in its module that nothing tells from it;
        then what else begins the walk and is read by the first that reads the start; then what
        follows starts of its operator, as of the second of two rows that are looked up. beyond:
        then those that follow in the start's module whatever they compute with, the nearest of all
        where none does.
        """
        region = [start, *self._around(start), *self._following(start, read)]
        region += self._tied(start, starts)
        for other in self._beside(start):
            region += [other, *self._around(other)]
        for other in starts:
            if other != start and self._is_twin(start, other):
                region += [other, *self._following(other, read)]
        region += self._combined_in_order(start)
        if beyond:
            after = self._following(start, None)
            region += [call for call in after if self._within(call, start)] or after[:NEAR]
        return tuple(dict.fromkeys(region[:MAX_REGION]))

    def _within(self, call: int, start: int) -> bool:
        """Whether a call is of a start's module, or of one within that."""
        module, own = self._side.texts(self._side.calls.module[[call, start]])
        return module == own or bool(own and module.startswith(f"{own}."))

    def _beside(self, start: int) -> list[int]:
        """What begins the walk beside a start, or is nothing that anybody can tell: the first that
        reads this reads that, too; in an update, or among parts, any of the next that compute with
        it.
        """
        if self._updating or self._partly:
            readers = self._following(start, None)[:NEAR]
        else:
            reading = (call for call, above in self._above.items() if start in above)
            readers = [min(reading, default=NONE)]
        beside = set[int]().union(*(self._above.get(call, ()) for call in readers))
        lasting, healed = self._first
        first = {*lasting, *healed}
        return [
            call
            for call in sorted(beside - {start, *readers})
            if call in first or call not in self._bright
        ]

    def _tied(self, start: int, starts: Sequence[int]) -> list[int]:
        """The first starts in a start's module that are where the two may part as well as it is."""
        module, order = self._side.calls.module, self.order(start)
        tied = (call for call in starts if call != start and module[call] == module[start])
        return list(islice((call for call in tied if self.order(call) == order), MAX_TIED))

    def _is_twin(self, start: int, other: int) -> bool:
        calls = self._side.calls
        columns = calls.op, calls.module, calls.phase, calls.step
        alike = all(column[start] == column[other] for column in columns)
        return alike and self.order(start) == self.order(other)

    def _following(self, start: int, read: set[int] | None) -> list[int]:
        """The calls that compute from a start, without those that read other parameters; with the
        first of these where none were read, as by what prepares data for a layer.
        """
        reached, following = {start}, list[int]()
        phase = self._side.calls.phase
        for call in sorted(self._above):
            later = self._updating or phase[call] == phase[start]
            if call > start and self._above[call] & reached and later:
                names = self._names(call)
                if read is not None and names and not names & read:
                    if not read:
                        following.append(call)
                    continue
                reached.add(call)
                following.append(call)
        return following
