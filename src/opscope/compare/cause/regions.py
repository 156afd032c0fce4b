# SPDX-License-Identifier: Apache-2.0
"""Two programs that are written differently: judged by what matters, not call by call.

What matters is what the models hand out, the loss, the gradients of parameters and what parameters
are after a step. Where all of it agrees, so do the programs. Else the first of it that does not is
followed back, on both sides, through tensors that meet nothing on the other, to the first calls
whose inputs all meet; those of which a result agrees again further on are only written otherwise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache, cached_property
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.compare.cause.crossed_inputs import crossed
from opscope.compare.cause.origins import (
    ARGUMENT,
    ARRIVED,
    COMPUTED,
    EXTRA,
    MISSING,
    OTHERWISE,
    REWIRED,
    Cause,
)
from opscope.compare.cause.what_matters import (
    CLIPPED,
    FORWARD,
    GRADIENT,
    PARAMETER,
    endings,
    last_states,
    settled,
)
from opscope.compare.pair.arguments import difference_of
from opscope.compare.pair.meetings import (
    Meetings,
    first_read,
    meet,
    same_parameters,
    sketch,
    vague,
)
from opscope.compare.side.columns import NONE, place_of
from opscope.operators.catalogue import family, traits_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from opscope.compare.cause.what_matters import Place
    from opscope.compare.pair.meetings import Names
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side

    Held = tuple[Names, list[list[int]]]
    Apart = tuple[Place, int, tuple[list[int], list[int]]]  # stage, and the rows of either side

ROUNDED = 64 * 2.0**-24  # of the largest gradient of its step: what is less may be rounding alone
LEAST = 4  # elements of a tensor that agrees by more than chance
BACKWARD = 16.0  # limits by which gradients, and what comes of them, may be apart
FINER = 0.125  # of the limits, where a difference that is sure is followed
_PHASES = {"forward", "backward", "optimizer"}
MAX_STARTS = 16
MAX_REGION = 256
MAX_AROUND = 2
MAX_ABOVE = 200  # calls that build a constant
MOVED = 0.2  # of the parameters that an optimizer moves otherwise, where it does
CROSSED = "what it reads is in each other's place: its inputs are swapped, or hold each other's"


class Parting(msgspec.Struct, frozen=True):
    """Where two programs part first: the calls of either side at which that begins (NONE where a
    side has none), and those between them and what was met before; rank and step.
    """

    place: Place
    stage: int
    start: tuple[int, int]
    region: tuple[tuple[int, ...], tuple[int, ...]]
    row: tuple[int, int] = (NONE, NONE)
    reader: int = NONE
    crossed: bool = False  # whether the starts read the same, in each other's place


def written_otherwise(pairing: Pairing) -> bool:
    """Whether each side runs calls in its models that compute and have no partner on the other; or
    in its steps, where one side writes its optimizer out.
    """
    if pairing.between is not None:
        return False
    sides = (pairing.target, pairing.match.target), (pairing.golden, pairing.match.golden)
    steps = [side.which(side.calls.phase, lambda phase: phase == "optimizer") for side, _ in sides]
    out = bool(steps[0].any() != steps[1].any())
    return all(
        side.run.info.format == "opscope" and _lonely(side, match)[~step | out].any()
        for (side, match), step in zip(sides, steps, strict=True)
    )


def _lonely(side: Side, match: NDArray[np.int64]) -> NDArray[np.bool_]:
    alone = (match < 0) & side.calls.leaf
    if not alone.any():
        return alone
    counts = side.which(side.calls.op, lambda op: not traits_of(op).idle)
    found: NDArray[np.bool_] = alone & counts & side.which(side.calls.phase, _PHASES.__contains__)
    return found


def judged(pairing: Pairing, causes: list[Cause]) -> tuple[Pairing, list[Cause]]:
    """The causes of a pairing of two programs that are written differently: nothing where all that
    matters agrees, else one; what was found call by call where they are written alike.
    """
    if not written_otherwise(pairing):
        return pairing, causes
    regions = Regions(_in_common_steps(pairing))
    if not regions.begun_alike():
        return pairing, causes
    pairing = msgspec.structs.replace(pairing, by_regions=True)
    parting = regions.parting()
    if parting is None:
        return pairing, []
    drawn = [cause for cause in causes if _draws(pairing, cause)] if regions.drawn() else []
    return pairing, drawn[:1] or [_told(pairing, parting)]


def _in_common_steps(pairing: Pairing) -> Pairing:
    """The pairing with all in one step where the two train in other steps: one that has no modules
    is counted otherwise.
    """
    sides = pairing.target, pairing.golden
    steps = [
        set(
            side.calls.step[
                side.which(side.calls.phase, lambda phase: phase == "backward")
            ].tolist()
        )
        for side in sides
    ]
    if steps[0] == steps[1]:
        return pairing
    merged = [
        msgspec.structs.replace(
            side, calls=msgspec.structs.replace(side.calls, step=np.zeros_like(side.calls.step))
        )
        for side in sides
    ]
    return msgspec.structs.replace(pairing, target=merged[0], golden=merged[1])


def _draws(pairing: Pairing, cause: Cause) -> bool:
    """Whether a cause is a draw of random numbers that one side makes."""
    return _random(pairing, cause.target) or _random(pairing, cause.golden, golden=True)


def _random(pairing: Pairing, call: int, *, golden: bool = False) -> bool:
    side = pairing.golden if golden else pairing.target
    return call >= 0 and traits_of(side.words.get(int(side.calls.op[call]), "")).random


def _told(pairing: Pairing, parting: Parting) -> Cause:
    """A parting as a cause: sure only of calls of one operator, with arguments and inputs that are
    equal. What one side has alone, or with other arguments, may be the way that it is written.
    """
    mine, theirs = parting.start
    if mine < 0:
        return Cause(MISSING, parting.reader, theirs, sure=False, region=parting.region)
    if parting.row[0] >= 0 and parting.stage == FORWARD:
        rows = np.flatnonzero(pairing.rows.target == parting.row[0])
        if len(rows):
            row = int(rows[0])
            return Cause(ARRIVED, mine, theirs, row, sure=False, region=parting.region)
    if theirs < 0:
        return Cause(EXTRA, mine, NONE, sure=False, region=parting.region)
    if parting.crossed:
        words = (CROSSED,)
        return Cause(REWIRED, mine, theirs, sure=False, words=words, region=parting.region)
    differing = difference_of(pairing, mine, theirs)
    ops = [
        family(side.words.get(int(side.calls.op[call]), ""))
        for side, call in ((pairing.target, mine), (pairing.golden, theirs))
    ]
    alike = ops[0] == ops[1]
    kind = ARGUMENT if alike and differing else COMPUTED if alike else OTHERWISE
    told = (differing,) if alike and differing else ()
    sure = kind == COMPUTED and _equal_inputs(pairing, mine, theirs)
    return Cause(kind, mine, theirs, sure=sure, words=told, region=parting.region)


def _equal_inputs(pairing: Pairing, mine: int, theirs: int) -> bool:
    """Whether digests say that two calls read the same: statistics know no order of elements."""
    read = []
    for side, flow, call in zip(
        (pairing.target, pairing.golden), pairing.flows, (mine, theirs), strict=True
    ):
        rows = _inputs(side, call)
        if not flow.whole[rows].all():
            return False
        read.append(flow.state[rows].tolist())
    return bool(read[0] == read[1])


class Regions:
    """Two programs' meetings, what matters in them, and where they part."""

    def __init__(self, pairing: Pairing) -> None:
        self.pairing = pairing
        self._sides = (pairing.target, pairing.golden)
        leaf = [
            np.flatnonzero(side.calls.leaf[side.tensors.call] & (side.tensors.nan >= 0))
            for side in self._sides
        ]
        self.meetings: Meetings = meet(pairing, (leaf[0], leaf[1]))
        self.unmet = self.meetings.unmet(0), self.meetings.unmet(1)
        self._vague = vague(self._sides[0]), vague(self._sides[1])

    @cached_property
    def names(self) -> list[Names]:
        """Parameters that both sides start from."""
        return same_parameters(*self._sides)

    def begun_alike(self) -> bool:
        """Whether anything that the two read at first is the same; parameters that have no names
        are drawn or loaded in the run, if not given.
        """
        rows = self._given(0)
        if not all(first_read(side) for side in self._sides):
            rows = np.union1d(rows, self._drawn_rows(0))
        return bool(self.names) or bool((~self.unmet[0])[rows].any())

    def drawn(self) -> bool:
        """Whether parameters that the target begins with are random numbers that golden has not."""
        known = {name for names in self.names for name in names[0]}
        rows = [row for name, row in first_read(self.pairing.target).items() if name not in known]
        producers = self.pairing.flows[0].producer[rows]
        return any(_random(self.pairing, call) for call in producers.tolist())

    def _given(self, number: int) -> NDArray[np.int64]:
        side, flow = self._sides[number], self.pairing.flows[number]
        return np.flatnonzero(
            ~side.tensors.output & (flow.producer < 0) & (side.tensors.size >= LEAST)
        )

    def _drawn_rows(self, number: int) -> NDArray[np.int64]:
        side = self._sides[number]
        draws = side.which(side.calls.op, lambda op: traits_of(op).random)
        tensors = side.tensors
        told = tensors.output & side.calls.leaf[tensors.call] & (tensors.size >= LEAST)
        return np.flatnonzero(told & draws[tensors.call] & ~self._vague[number])

    def parting(self) -> Parting | None:
        """Where the two part first; None where all that matters agrees."""
        found = [*self._results(), *self._states()]
        if not found:
            return None
        place, stage, _ = min(found, key=lambda one: one[:2])
        # What is known to part parts further up than where it is seen.
        self.unmet = self._limited(0, stage), self._limited(1, stage)
        found.extend(self._results())
        found.extend(one for one in self._states(FINER) if one[0] < place)
        place = min(one[0] for one in found)
        stage = min(one[1] for one in found if one[0] == place)
        chosen = [one for one in found if one[:2] == (place, stage)]
        ends = tuple(sorted({row for one in chosen for row in one[2][side]}) for side in (0, 1))
        if stage == FORWARD:
            ends = ends[0][:1], ends[1][:1]  # what comes later may have a cause before the first
        return self._located(place, stage, (ends[0], ends[1]))

    def _limited(self, number: int, stage: int) -> NDArray[np.bool_]:
        """What does not meet by the limits for tensors before a stage."""
        if stage >= CLIPPED:
            return self.meetings.unmet(number, BACKWARD)
        side = self._sides[number]
        forward = side.which(side.calls.phase, lambda phase: phase == "forward")
        return np.where(
            forward[side.tensors.call],
            self.meetings.unmet(number, FINER),
            self.meetings.unmet(number),
        )

    # -- what matters ------------------------------------------------------------------------------

    def _results(self) -> Iterator[Apart]:
        """Losses, and what the outermost modules hand out, that meet nothing on the other side;
        where that has none, as without an evaluation at the end, nothing is missed.
        """
        found = [
            endings(side, flow.source_row)
            for side, flow in zip(self._sides, self.pairing.flows, strict=True)
        ]
        places = [
            [
                (int(side.calls.rank[call]), int(side.calls.step[call]))
                for call in side.tensors.call[rows]
            ]
            for side, rows in zip(self._sides, found, strict=True)
        ]
        known = [set(one) for one in places]
        for number, rows in enumerate(found):
            apart = self.unmet[number][rows] & ~self._vague[number][rows]
            for at in np.flatnonzero(apart).tolist():
                row, place = int(rows[at]), places[number][at]
                if place in known[1 - number]:
                    yield place, FORWARD, ([row], []) if number == 0 else ([], [row])

    def _states(self, share: float = 1.0) -> Iterator[Apart]:
        """Gradients and parameters that are not what those of the same parameters are on the other
        side, by so much of their limits.
        """
        last = last_states(self._sides[0]), last_states(self._sides[1])
        places = {place for place, _, _ in last[0]} & {place for place, _, _ in last[1]}
        for place in sorted(places):
            nothing: set[Names] = set()  # of which the gradient is rounding alone
            for stage in (GRADIENT, CLIPPED, PARAMETER):
                held = []
                for names in self.names:
                    rows = [
                        [last[number].get((place, stage, name), NONE) for name in names[number]]
                        for number in (0, 1)
                    ]
                    if all(row >= 0 for side in rows for row in side):
                        held.append((names, rows))
                for apart in self._apart(stage, held, nothing, share=share):
                    yield place, stage, apart

    def _apart(
        self, stage: int, held: list[Held], nothing: set[Names], *, share: float
    ) -> list[tuple[list[int], list[int]]]:
        """Those of a step; a gradient that is rounding alone is none, nor what comes of it."""
        sketches = [
            (names, rows, sketch(self._sides[0], rows[0]), sketch(self._sides[1], rows[1]))
            for names, rows in held
        ]
        reach = max((one.reach for *_, one in sketches), default=0.0)
        if stage == GRADIENT:
            nothing |= {
                names
                for names, rows, *both in sketches
                if any(
                    sketch(side, [row]).reach <= ROUNDED * reach
                    for side, some in zip(self._sides, rows, strict=True)
                    for row in some
                )
            }
        judged = [one for one in sketches if one[0] not in nothing]
        apart = [
            (rows[0], rows[1])
            for _, rows, mine, theirs in judged
            if mine.error(theirs)
            > (share if stage == PARAMETER else share * BACKWARD)
            * max(float(self.meetings.limit[0][row]) for row in rows[0])
        ]
        return apart if stage != PARAMETER or len(apart) > MOVED * len(judged) else []

    # -- where it begins ---------------------------------------------------------------------------

    def _located(
        self, place: Place, stage: int, ends: tuple[list[int], list[int]]
    ) -> Parting | None:
        walks = [self._walk(number, stage, ends[number]) for number in (0, 1)]
        starts = [walk.starts() for walk in walks]
        if starts[0] and starts[1] and starts[0][0] in walks[0].given:
            mine, theirs = starts[0][0], min(starts[1])
        else:
            mine, theirs = self._partners(*starts)
        swapped = mine >= 0 and theirs >= 0 and crossed(self.pairing, self.meetings, (mine, theirs))
        mine, theirs = swapped or (mine, theirs)
        if mine == NONE and theirs == NONE:
            return None
        heads = [
            walk.head(start) if start >= 0 else set[int]()
            for walk, start in zip(walks, (mine, theirs), strict=True)
        ]
        read = self._shared_names(*heads)
        regions = [
            walk.region(start, read[number]) if start >= 0 else ()
            for number, (walk, start) in enumerate(zip(walks, (mine, theirs), strict=True))
        ]
        rows = [
            walk.given.get(start, NONE) for walk, start in zip(walks, (mine, theirs), strict=True)
        ]
        return Parting(
            place,
            stage,
            (mine, theirs),
            (regions[0], regions[1]),
            (rows[0], rows[1]),
            walks[0].last if mine < 0 else mine,
            bool(swapped),
        )

    def _walk(self, number: int, stage: int, ends: Iterable[int]) -> Walk:
        side = self._sides[number]
        known = np.array(
            sorted({name for names in self.names for name in names[number]}), dtype=np.uint64
        )
        flags = self.unmet[number].copy(), self._vague[number]
        flags[0][settled(side, self.pairing.flows[number], known, stage)] = False
        flags[0][list(ends)] = True
        return Walk(self.pairing, number, flags, list(ends))

    def _shared_names(self, mine: set[int], theirs: set[int]) -> tuple[set[int], set[int]]:
        """Parameters that either side's start reads, by the names of both sides."""
        read = [
            names
            for names in self.names
            if mine.intersection(names[0]) or theirs.intersection(names[1])
        ]
        return (
            mine.union(*(names[0] for names in read)),
            theirs.union(*(names[1] for names in read)),
        )

    def _partners(self, mine: list[int], theirs: list[int]) -> tuple[int, int]:
        """The starts that belong together: one operator of the same inputs, else the earliest that
        share an input, else the earliest.
        """
        if not mine or not theirs:
            return (mine or [NONE])[0], (theirs or [NONE])[0]
        ops = [
            [family(side.words.get(int(side.calls.op[call]), "")) for call in calls]
            for side, calls in zip(self._sides, (mine, theirs), strict=True)
        ]
        best: tuple[tuple[bool, bool, int], int, int] | None = None
        for i, one in enumerate(mine[:MAX_STARTS]):
            for j, other in enumerate(theirs[:MAX_STARTS]):
                shared, whole = self._shared(one, other)
                told = (whole and ops[0][i] == ops[1][j], shared, -i - j), one, other
                best = told if best is None or told[0] > best[0] else best
        return (best[1], best[2]) if best is not None and best[0][1] else (mine[0], theirs[0])

    def _shared(self, mine: int, theirs: int) -> tuple[bool, bool]:
        """Whether a call of golden reads partners of what one of the target reads, and nothing
        else.
        """
        flow = self.pairing.flows[1]
        read = [_inputs(side, call) for side, call in zip(self._sides, (mine, theirs), strict=True)]
        met = self.meetings.partner[0]
        one = {int(flow.state[met[row]]) if met[row] >= 0 else NONE for row in read[0]}
        other = {int(flow.state[row]) for row in read[1]}
        return bool(one & other), one == other


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
            for row in _inputs(self._side, call):
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
        nowhere with anything again.
        """
        bright = self._bright
        found, below = list[int](), set[int]()  # below: what reads something of the walk, by and by
        for call, above in sorted(self._above.items()):
            if above & below or any(self._fed(one) for one in above & bright):
                below.add(call)
            if (call in self.given and not above & bright) or (
                call in bright and call not in below
            ):
                found.append(call)
        kept = [call for call in found if not self._heals(call)]
        return sorted(kept, key=lambda call: not self._fed(call)) or found[-1:] or [self.last]

    @cache  # noqa: B019 - a walk lives as long as its question
    def _fed(self, call: int) -> bool:
        """Whether a call reads what was computed from what the program was given: a constant that
        is built otherwise is no fault by itself.
        """
        waiting, seen = [call], set[int]()
        while waiting and len(seen) < MAX_ABOVE:
            at = waiting.pop()
            if at in seen:
                continue
            seen.add(at)
            for row in _inputs(self._side, at):
                producer = int(self._flow.producer[row])
                if producer < 0 or self._side.tensors.named[row]:
                    return True
                waiting.append(producer)
        return len(seen) >= MAX_ABOVE

    @cached_property
    def _bright(self) -> set[int]:
        """Calls of the walk of which something differs, not only something that nobody can tell."""
        found = set[int]()
        for call in sorted(self._above):
            outputs = [row for row in _rows(self._side, call) if self._side.tensors.output[row]]
            told = [row for row in outputs if not self._dim[row]]
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
            tensors.output[row]
            and not self._unmet[row]
            and not self._dim[row]
            and tensors.size[row] >= LEAST
            and tensors.min[row] < tensors.max[row]
            and tensors.min_int[row] == np.iinfo(np.int64).min
            for row in _rows(self._side, call)
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
            for row in _inputs(self._side, start)
            if not tensors.parameter[row] and calls.phase[start] == calls.phase[0]
        ]
        made = {self._computed(int(self._flow.producer[row])) for row in rows} - {NONE}
        versions = {int(tensors.version[row]) for row in rows}
        found, at = sorted(made)[-MAX_AROUND:], start
        while calls.parent[at] >= 0 and len(found) < 2 * MAX_AROUND:
            at = int(place_of((calls.process[[at]] << 40) | calls.parent[[at]], calls.key)[0])
            given = {int(tensors.version[row]) for row in _inputs(self._side, at)}
            if at < 0 or not given & versions:
                break
            found.append(at)
        return found

    def _computed(self, call: int) -> int:
        """A call, or what computed that of which it is a view or a copy."""
        side = self._side
        while call >= 0 and traits_of(side.words.get(int(side.calls.op[call]), "")).idle:
            rows = _inputs(side, call)
            if len(rows) != 1 or self._flow.producer[rows[0]] < 0:
                break
            call = int(self._flow.producer[rows[0]])
        return call

    def head(self, start: int) -> set[int]:
        """Names of the parameters that a start reads."""
        return self._names(start)

    def _names(self, call: int) -> set[int]:
        tensors = self._side.tensors
        return {
            int(tensors.named[row])
            for row in _inputs(self._side, call)
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


def _inputs(side: Side, call: int) -> list[int]:
    return [row for row in _rows(side, call) if not side.tensors.output[row]]
