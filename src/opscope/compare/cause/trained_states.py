# SPDX-License-Identifier: Apache-2.0
"""Gradients and parameters of two programs that are not what those of the same parameters are on
the other side.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.cause.across_worlds import drifts_from, kept_otherwise, rounded_rate
from opscope.compare.cause.decayed_gradients import decayed_alike
from opscope.compare.cause.gradient_paths import Path
from opscope.compare.cause.what_matters import (
    CLIPPED,
    FORWARD,
    GRADIENT,
    PARAMETER,
    last_states,
)
from opscope.compare.pair.arguments import difference_of
from opscope.compare.pair.common_steps import begin_late
from opscope.compare.pair.parameters import learnt_names
from opscope.compare.pair.sketches import sketch
from opscope.compare.side.call_rows import inputs_of, places_of
from opscope.compare.side.cancelled_means import cancelled_means
from opscope.compare.side.contents import bears_identities, in_dumps
from opscope.compare.side.lowering import worlds_apart
from opscope.judge.operators import is_per_element
from opscope.operators.catalogue import traits_of
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from opscope.arrays import Bools, Ints, Words
    from opscope.compare.cause.what_matters import Place
    from opscope.compare.pair.meetings import Meetings
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.pair.parameters import Names
    from opscope.compare.side.columns import Side

    Held = tuple[Names, list[int], list[int]]  # parameters, and the rows of either side
    Rows = tuple[list[int], list[int]]  # of either side
    Apart = tuple[Place, int, Rows]  # and the stage
    Moves = dict[tuple[Place, int], tuple[int, int]]  # by place and name

ROUNDED = 64 * 2.0**-24  # of the largest gradient of its step: what is less may be rounding alone
ROUNDINGS = 8.0  # the same in those of a coarse type, of which long sums leave fewer
BACKWARD = 16.0  # limits by which gradients, and what comes of them, may be apart
FAINT = 256.0  # the same in steps behind the first, where no loss is apart
BARELY = 4.0  # limits by which parameters may be apart where no loss is
FLIPPED = 0.02  # of themselves, by which gradients part where losses of later steps do not
TRAINS = "it trains a parameter that golden leaves as it is: frozen there, or in no optimizer"
LEAVES = "golden trains a parameter that is left as it is here: frozen, or in no optimizer"
MOVED = 0.2  # of the parameters that an optimizer moves otherwise, where it does
# the same in a coarse type, where what begins as zeros is all roundings; and in dumps, which know
# few parameters
MOVED_COARSELY = 0.5
SEVERAL = 4  # parameters that tell how far all of them move
STEADY = 0.1  # of what is off, by which single ones may be off otherwise
OFF = 0.02  # of how far a parameter moves: more, by the same part of several, is another rate
ALIKE = 2e-3  # of what is off, by which parameters of one rate may be off otherwise
NEARLY = 0.25  # the same, of extremes
TELLING = 8  # elements of a parameter of which the extremes tell anything
EVENLY = 2.0  # times as far off as another: what all elements of a parameter are made less by


class TrainedStates:
    """What two programs trained: the last gradient and content of each parameter in each step."""

    def __init__(self, pairing: Pairing, meetings: Meetings, names: list[Names]) -> None:
        self._pairing, self._meetings, self._names = pairing, meetings, names
        self._sides = pairing.target, pairing.golden
        self._drifts_from = drifts_from(self._sides, meetings)
        self._across = worlds_apart(*self._sides)
        self._rounded = ROUNDINGS * meetings.unit if meetings.coarse else ROUNDED

    @cached_property
    def last(self) -> tuple[dict[tuple[Place, int, int], int], ...]:
        """The rows that hold them, of either side, by place, stage and name; none where backward
        passes or updates of a run were left out.
        """
        if not all(side.run.info.coverage.passes for side in self._sides):
            return {}, {}
        return tuple(map(last_states, self._sides, self._pairing.flows))

    @cached_property
    def judged(self) -> list[Names]:
        """The parameters that steps of both sides leave in a state that is known."""
        known = [{name for _, stage, name in last if stage == PARAMETER} for last in self.last]
        return [
            names
            for names in self._names
            if known[0].issuperset(names[0]) and known[1].issuperset(names[1])
        ]

    def sound(self, apart: Iterable[Apart]) -> dict[Place, float]:
        """The places at which gradients agree, or are a multiple that somebody takes back, or at
        which parameters do where nobody knows gradients, with 1; where those part first, with how
        many times as far as golden's they move, NaN where that is not one number. apart: what does
        not agree.
        """
        trained = [entry for entry in apart if entry[1] != FORWARD]
        mine, theirs = (
            {place for place, stage, _ in last if stage in {GRADIENT, CLIPPED}}
            for last in self.last
        )
        graded = mine & theirs
        unsound = {place for place, stage, _ in trained if stage in {GRADIENT, CLIPPED}}
        unsound |= {place for place, (_, unsaid) in self._whole.items() if unsaid}
        parted = {place for place, _, _ in trained} - graded - unsound
        sound = dict.fromkeys(graded | set(self.places if self.judged else ()), 1.0)
        for place in unsound | parted:
            sound.pop(place, None)
        if parted:
            first = min(parted)
            rows = [rows for place, _, rows in trained if place == first]
            sound = {place: 1.0 for place in sound if place < first}
            moved = self.times_moved(first, rows)
            sound[first] = np.nan if moved == 1 else moved
        return sound

    @cached_property
    def places(self) -> list[Place]:
        """The places at which both sides have them, in order."""
        mine, theirs = ({place for place, _, _ in last} for last in self.last)
        return sorted(mine & theirs)

    @cached_property
    def compared(self) -> bool:
        """Whether anything is known of one parameter on both sides at once."""
        return any(
            min(*mine, *theirs) >= 0
            for place in self.places
            for stage in (GRADIENT, CLIPPED, PARAMETER)
            for names in self._names
            for mine, theirs in [self._rows((place, stage), names)]
        )

    @property
    def mostly_compared(self) -> bool:
        """Whether what is known of both sides is at least half of what either trains."""
        return self.compared and all(
            2 * sum(held.get(name, 0) for names in self._names for name in names[number])
            >= sum(held.values())
            for number, held in enumerate(map(_learnt_sizes, self._sides, self._learnt))
        )

    @cached_property
    def _updating(self) -> set[Place]:
        """The places at which both sides write to parameters."""
        mine, theirs = (
            {place for place, stage, _ in last if stage == PARAMETER} for last in self.last
        )
        return mine & theirs

    @cached_property
    def clipped_alone(self) -> list[Words]:
        """Names of parameters of either side of which one side alone holds clipped gradients."""
        held = [{name for _, stage, name in last if stage == CLIPPED} for last in self.last]
        alone = [
            names
            for names in self._names
            if held[0].issuperset(names[0]) != held[1].issuperset(names[1])
        ]
        return [
            np.array(sorted({name for names in alone for name in names[number]}), dtype=np.uint64)
            for number in (0, 1)
        ]

    def apart(self, share: float = 1.0) -> Iterator[Apart]:
        """Gradients and parameters that are not what those of the same parameters are on the other
        side, by so much of their limits; parameters alone once the two drift.
        """
        for place in self.places:
            yield from (self._whole[place] if share == 1.0 else self._apart_at(place, share))[0]
            if share == 1.0:
                yield from ((place, PARAMETER, rows) for rows in self._trained_alone(place))

    @cached_property
    def _whole(self) -> dict[Place, tuple[list[Apart], list[Apart]]]:
        """What is apart in each step by the whole limits."""
        return {place: self._apart_at(place, 1.0) for place in self.places}

    def _apart_at(self, place: Place, share: float) -> tuple[list[Apart], list[Apart]]:
        """Those of a step; and gradients that are the other side's times one number, which nobody
        takes back, though the parameters agree: an optimizer may make nothing of it.
        """
        found: list[Apart] = []
        nothing: set[Names] = set()  # of which the gradient is rounding alone
        scaled: list[Apart] = []  # gradients that are all golden's times one number
        unsaid: list[Apart] = []
        for stage in (GRADIENT, CLIPPED, PARAMETER):
            held = [
                (names, mine, theirs)
                for names in self._names
                for mine, theirs in [self._rows((place, stage), names)]
                if min(*mine, *theirs) >= 0
                and not (self._cancelled(mine, theirs) or self._sampled(mine, theirs))
            ]
            floor = 0.0
            if stage != PARAMETER:
                reach = max((self._reach(entry[1:]) for entry in held), default=0.0)
                reach = max(reach, self._largest_gradient.get(place, 0.0))
                floor = self._rounded * reach
                nothing |= {entry[0] for entry in held if self._least(entry) <= floor}
            judged = [entry for entry in held if entry[0] not in nothing]
            if stage == GRADIENT:
                judged = [entry for entry in judged if not self._alike_clipped(place, entry, share)]
            if stage != PARAMETER and place[1] >= self._drifts_from:
                continue
            further = self._further((place, stage), judged, share)
            apart = [
                (place, stage, rows)
                for rows in further
                if self._error(*rows) * self._reach(rows) > floor
            ]
            if stage == PARAMETER:  # where these agree, somebody took the number back
                kept = self._kept_scaled(scaled)
                (unsaid if judged and not apart else found).extend(kept)
            elif apart and self._scaled(entry[1:] for entry in judged):
                unseen = stage == CLIPPED and in_dumps(*self._sides)
                scaled += [] if unseen else apart
                continue
            elif 2 * len(apart) < len(judged):
                apart = self._not_taken_back(apart, judged)
            found += apart
        return found, unsaid

    def _cancelled(self, *rows: list[int]) -> bool:
        """Whether a state of either side is an average of which rounding is left."""
        return any(flags[some].any() for flags, some in zip(self._means, rows, strict=True))

    def _sampled(self, mine: list[int], theirs: list[int]) -> bool:
        """Whether variances that norms of two frameworks keep are no further apart than that of a
        sample is from that of all that is averaged.
        """
        for side, rows in zip(self._sides, (mine, theirs), strict=True):
            tensors = side.tensors
            for row in rows if self._across else ():
                call, size = int(tensors.call[row]), int(tensors.size[row])
                whole = max((int(tensors.size[read]) for read in inputs_of(side, call)), default=0)
                norm = traits_of(side.operator(call)).error == "norm" and tensors.min[row] >= 0
                if norm and whole > size:
                    return self._error(mine, theirs) <= size / (whole - size)
        return False

    @cached_property
    def _means(self) -> list[Bools]:
        return [cancelled_means(side) for side in self._sides]

    def _elsewhere(self, mine: list[int], theirs: list[int]) -> bool:
        """Whether parameters of dumps hold what others of the other side do: those that begin as
        ones, or as zeros, may be in each other's place.
        """
        if not in_dumps(*self._sides):
            return False
        return self._met(0, mine) and self._met(1, theirs)

    def _met(self, number: int, rows: list[int]) -> bool:
        """Whether all of these rows of a side agree with something of the other."""
        error, limit = self._meetings.error[number][rows], self._meetings.limit[number][rows]
        return bool((error <= limit).all())

    def faint(self, apart: list[Apart], start: int) -> bool:
        """Whether all that is apart begins with gradients that are so by little more than their
        limits, at a call of a step behind the first (start), and no loss is: roundings that grow
        from step to step, or flip what a threshold lets through. A fault of a backward pass begins
        in the first step, one of an optimizer in parameters.
        """
        calls = self._sides[0].calls
        first = min(apart, key=lambda entry: entry[:2])
        place = int(calls.rank[start]), int(calls.step[start])
        graded = [entry for entry in apart if entry[1] in {GRADIENT, CLIPPED}]
        return (
            first[1] in {GRADIENT, CLIPPED}
            and (begin_late(self._pairing) or place > self.places[0])
            and all(stage != FORWARD for _, stage, _ in apart)
            and (
                all(self._error(*rows) <= FAINT * self._limit(rows[0]) for *_, rows in graded)
                or (
                    self._followed(first[0])
                    and self._hardly(entry for entry in graded if entry[0] == first[0])
                )
            )
        )

    def barely(self, apart: list[Apart]) -> bool:
        """Whether a few parameters alone are apart, by little more than their limits, in a step
        behind which losses agree: roundings that an optimizer makes more of.
        """
        first = min(place for place, _, _ in apart)
        return self._followed(first) and all(
            stage == PARAMETER and self._error(*rows) <= BARELY * self._limit(rows[0])
            for _, stage, rows in apart
        )

    def _followed(self, place: Place) -> bool:
        """Whether other steps follow, in which losses would tell what is wrong at a place."""
        return place < max(self.places, default=place)

    def _hardly(self, graded: Iterable[Apart]) -> bool:
        """Whether gradients are apart by so little that a few elements may make it."""
        return all(self._error(*rows) <= FLIPPED for *_, rows in graded)

    def _scaled(self, judged: Iterable[Rows]) -> bool:
        """Whether gradients are all the other side's times one number: of a loss that is divided by
        the number of passes, or clipped (in dumps where no call shows it).
        """
        factors = [
            factor
            for mine, theirs in judged
            for factor in sketch(self._sides[0], mine).factors(sketch(self._sides[1], theirs))
        ]
        told = np.array([factor for factor in factors if factor != 1])
        middle = float(np.median(told)) if len(told) else 1.0
        return abs(middle - 1) > OFF and bool((np.abs(told / middle - 1) <= ALIKE).all())

    def _not_taken_back(self, apart: list[Apart], judged: list[Held]) -> list[Apart]:
        """Those of a few gradients that are not each the other side's times one number, as of one
        loss among several, which is multiplied behind its backward pass: all where what such a
        gradient leaves is apart and nothing else is.
        """
        scaled = [rows for _, _, rows in apart if self._scaled([rows])]
        if not scaled:
            return apart
        left = [
            (mine, theirs) in scaled
            for names, mine, theirs in judged
            if self._leaves_apart(apart[0][0], names)
        ]
        counts = bool(left) and all(left)
        return [entry for entry in apart if counts or entry[2] not in scaled]

    def _leaves_apart(self, place: Place, names: Names) -> bool:
        """Whether a step leaves parameters that are not the other side's."""
        mine, theirs = self._rows((place, PARAMETER), names)
        known = min(*mine, *theirs) >= 0
        return known and self._error(mine, theirs) > self._limit(mine)

    def _kept_scaled(self, scaled: list[Apart]) -> list[Apart]:
        """Those of gradients that are all the other side's times one number in which nobody took
        that back: where either side's are all among what the other computes, somebody did.
        """
        taken = {
            stage
            for stage in {stage for _, stage, _ in scaled}
            for number in (0, 1)
            if self._met(number, _ends(scaled, number, stage))
        }
        return [entry for entry in scaled if entry[1] not in taken]

    def _alike_clipped(self, place: Place, held: Held, share: float) -> bool:
        """Whether gradients are the same once one side has changed its own behind the backward
        pass: as the other does within, or before it changes them, too.
        """
        names, mine, theirs = held
        clipped = self._rows((place, CLIPPED), names)
        changed = [
            (clipped[0], theirs) if number == 0 else (mine, clipped[1])
            for number in (0, 1)
            if min(clipped[number]) >= 0
        ]
        limit = share * BACKWARD * self._limit(mine)
        if any(self._error(*rows) <= limit for rows in changed):
            return True
        if not len(mine) == len(theirs) == 1:
            return False
        return decayed_alike(self._pairing, self._meetings, (mine[0], theirs[0]), share * BACKWARD)

    def one_trains(self, place: Place, rows: Rows) -> Path | None:
        """The calls by which one side trains what the other leaves as it is, where that is all that
        is apart, and words for it: its last write to that, and the other's last to anything.
        """
        if rows not in self._trained_alone(place):
            return None
        writes = [self._sides[number].tensors.output[rows[number][0]] for number in (0, 1)]
        last = [
            max(row for (at, stage, _), row in known.items() if (at, stage) == (place, PARAMETER))
            for known in self.last
        ]
        mine, theirs = (
            int(side.tensors.call[max(some) if written else other])
            for side, some, written, other in zip(self._sides, rows, writes, last, strict=True)
        )
        return Path(mine, theirs, TRAINS if writes[0] else LEAVES)

    def times_moved(self, place: Place, apart: list[Rows]) -> float:
        """How many times as far as golden's the target's parameters move in a step, by their means,
        or those of them that are apart; 1 where that is not the same of nearly all of several.
        """
        moved = self._ratios(place)
        ratios = np.array(list(moved.values()))
        if len(ratios) >= SEVERAL:
            middle = float(np.median(ratios))
            off = float(np.median(np.abs(ratios - middle)))
            if middle != 1 and off <= STEADY * abs(middle - 1):
                return middle
        group = self._of_one_rate(place, apart)
        return moved[self._names_of(group[0])] if 2 * len(group) > len(apart) else 1.0

    def _of_one_rate(self, place: Place, apart: list[Rows]) -> list[Rows]:
        """Those of what is apart that move as many times as far as golden's, where that is not
        once: parameters of a group that has another rate. Of one at least the extremes tell it,
        too: where some gradients are rounding alone, the mean moves by anything, the extremes as
        golden's do.
        """
        moved = self._ratios(place)
        known = [
            (moved[names], rows)
            for rows in apart
            for names in [self._names_of(rows)]
            if abs(moved.get(names, 1.0) - 1) > OFF
            if any(np.isin(names[number], self._learnt[number]).all() for number in (0, 1))
        ]
        alike = [
            [rows for ratio, rows in known if abs(ratio - middle) <= ALIKE * abs(middle - 1)]
            for middle, rows in known
            if self._extremes_move(place, rows, middle)
        ]
        return max(alike, key=len, default=[])

    def _extremes_move(self, place: Place, rows: Rows, ratio: float) -> bool:
        """Whether the least and the most of a parameter, as far as golden's move, do so about as
        many times as far: another element may be the most, then. Few elements may all be rounding,
        which turns them round.
        """
        if ratio < 0 or sketch(self._sides[0], rows[0]).size < TELLING:
            return False
        mine, theirs = (
            self._moved(number, place, names) for number, names in enumerate(self._names_of(rows))
        )
        ratios = [a / b for a, b in zip(mine[1:], theirs[1:], strict=True) if b]
        limit = NEARLY * abs(ratio - 1)
        return bool(ratios) and all(abs(each - ratio) <= limit for each in ratios)

    def _names_of(self, rows: Rows) -> Names:
        """The names of the parameters of rows of either side."""
        mine, theirs = (
            tuple(side.tensors.named[some].tolist())
            for side, some in zip(self._sides, rows, strict=True)
        )
        return mine, theirs

    def _ratios(self, place: Place) -> dict[Names, float]:
        """How many times as far as golden's the mean of a parameter, or of several as one, moves in
        a step.
        """
        known = {
            names: [self._moved(number, place, names[number])[0] for number in (0, 1)]
            for names in self.judged
            if all(
                (place, name) in self._moves[number] for number in (0, 1) for name in names[number]
            )
        }
        return {names: mine / theirs for names, (mine, theirs) in known.items() if theirs}

    def _moved(
        self, number: int, place: Place, names: tuple[int, ...]
    ) -> tuple[float, float, float]:
        """By how much mean, least and most of parameters of a side change in a step."""
        ends = [self._moves[number][place, name] for name in names]
        before, after = (sketch(self._sides[number], rows) for rows in zip(*ends, strict=True))
        mean = (after.total - before.total) / max(after.size, 1)
        return mean, after.least - before.least, after.most - before.most

    @cached_property
    def _moves(self) -> list[Moves]:
        """The rows in which each parameter of either side is read last before a step writes to it,
        and in which that is written last.
        """
        return [_moves(side, last) for side, last in zip(self._sides, self.last, strict=True)]

    def _trained_alone(self, place: Place) -> list[Rows]:
        """Rows of parameters that one side alone writes to in a step, and the other reads
        afterwards as they were: frozen there, or left out of the optimizer. None where a side shows
        no write at all, as of a flat tensor that parameters are views of.
        """
        alone: list[Rows] = []
        if place not in self._updating:
            return alone
        for names in self._names:
            held = self._rows((place, PARAMETER), names)
            known = [max(rows) >= 0 for rows in held]
            if known[0] == known[1]:
                continue
            still = known.index(False)
            held[still] = [self._read(still, place, name) for name in names[still]]
            rows = held[0], held[1]
            if min(*rows[0], *rows[1]) >= 0 and self._error(*rows) > self._limit(rows[0]):
                alone.append(rows)
        return alone

    def _read(self, number: int, place: Place, name: int) -> int:
        """The row of a parameter that nobody ever writes to, as it is read after a place."""
        known = self._never_written[number].get(name, [])
        return next((row for at, row in known if at[0] == place[0] and at > place), NONE)

    @cached_property
    def _never_written(self) -> list[dict[int, list[tuple[Place, int]]]]:
        """Where parameters of either side are read that are written to in no step, by name."""
        return [_reads(side, last) for side, last in zip(self._sides, self.last, strict=True)]

    def _rows(self, at: tuple[Place, int], names: Names) -> list[list[int]]:
        """The rows of parameters of either side at a place and stage, NONE where there is none."""
        return [
            [known.get((*at, name), NONE) for name in some]
            for known, some in zip(self.last, names, strict=True)
        ]

    @cached_property
    def _largest_gradient(self) -> dict[Place, float]:
        """The largest number that calls of backward passes make in each step of dumps, which say of
        few parameters what their gradients are.
        """
        largest: dict[Place, float] = {}
        for side in self._sides:
            if bears_identities(side):
                continue
            tensors = side.tensors
            backward = side.in_phase("backward")
            rows = np.flatnonzero(tensors.output & backward[tensors.call] & (tensors.size > 1))
            reach = np.nan_to_num(np.fmax(np.abs(tensors.min[rows]), np.abs(tensors.max[rows])))
            for place, most in zip(places_of(side, rows), reach.tolist(), strict=True):
                largest[place] = max(largest.get(place, 0.0), most)
        return largest

    def _reach(self, rows: Rows) -> float:
        """The largest magnitude that either side holds."""
        return max(sketch(side, some).reach for side, some in zip(self._sides, rows, strict=True))

    def _least(self, held: Held) -> float:
        return min(
            sketch(side, [row]).reach
            for side, rows in zip(self._sides, held[1:], strict=True)
            for row in rows
        )

    def _error(self, mine: list[int], theirs: list[int]) -> float:
        return sketch(self._sides[0], mine).error(sketch(self._sides[1], theirs))

    def _limit(self, mine: list[int]) -> float:
        return max(float(self._meetings.limit[0][row]) for row in mine)

    def _rounded_rate(self, rows: Rows) -> float:
        """By how much parameters may be apart since one side is of another world."""
        return rounded_rate(self._sides, rows) if self._across else 0.0

    def _further(self, at: tuple[Place, int], judged: list[Held], share: float) -> list[Rows]:
        """The rows of what is apart at a place and stage by more than a share of its limit."""
        place, stage = at
        apart = [
            (mine, theirs)
            for _, mine, theirs in judged
            if not self._elsewhere(mine, theirs)
            if self._error(mine, theirs)
            > (
                share * self._limit(mine) + self._rounded_rate((mine, theirs))
                if stage == PARAMETER
                else share * BACKWARD * self._limit(mine)
            )
        ]
        if stage == PARAMETER:
            apart = [rows for rows in apart if not self._alike_before_copy(*rows)]
        few = self._meetings.coarse or in_dumps(*self._sides)
        share_moved = MOVED_COARSELY if few else MOVED
        if stage != PARAMETER or len(apart) > share_moved * len(judged):
            return apart
        of_one_rate = self._of_one_rate(place, apart)
        return [
            pair
            for pair in apart
            if pair in of_one_rate
            or kept_otherwise(self._sides, pair)
            or self._told_otherwise(*pair)
            or self._decayed(*pair)
        ]

    def _alike_before_copy(self, mine: list[int], theirs: list[int]) -> bool:
        """Whether one side copied something else into a parameter, as an average of the weights, at
        the end of a step in which it was what the other's is: the other may do so at the next one's
        beginning, which shows what was copied.
        """
        written = self._written_before_copies[0], self._written_before_copies[1]
        before = [
            [known.get(row, row) for row in rows]
            for known, rows in zip(written, (mine, theirs), strict=True)
        ]
        if before == [mine, theirs]:
            return False
        either = (before[0], theirs), (mine, before[1])
        return any(self._error(*rows) <= self._limit(mine) for rows in either)

    @cached_property
    def _written_before_copies(self) -> list[dict[int, int]]:
        """For rows of parameters of either side into which something was copied as it is, the row
        that was written before it in its step.
        """
        return list(map(_before_copies, self._sides))

    @cached_property
    def _learnt(self) -> list[Words]:
        """Names of parameters of either side that get gradients."""
        return [learnt_names(side) for side in self._sides]

    def _decayed(self, mine: list[int], theirs: list[int]) -> bool:
        """Whether one is the other times a number that is not one, of a parameter that gets
        gradients: it decays on one side alone.
        """
        if not np.isin(self._sides[0].tensors.named[mine], self._learnt[0]).all():
            return False
        off = np.array(sketch(self._sides[0], mine).factors(sketch(self._sides[1], theirs))) - 1
        least, most = np.abs(off).min(), np.abs(off).max()
        one_way = (off > 0).all() or (off < 0).all()
        return bool(one_way and most <= EVENLY * least and least > BACKWARD * self._limit(mine))

    def _told_otherwise(self, mine: list[int], theirs: list[int]) -> bool:
        """Whether one operator made the two of the same, with other arguments: another rate of a
        group. Of one over lists nobody looks at what each of them is made of.
        """
        calls = [
            int(side.tensors.call[rows[0]])
            for side, rows in zip(self._sides, (mine, theirs), strict=True)
        ]
        ops = {side.operator(call) for side, call in zip(self._sides, calls, strict=True)}
        if len(ops) != 1 or not difference_of(self._pairing, calls[0], calls[1]):
            return False
        return is_per_element(ops.pop()) or self._read_alike(calls)

    def _read_alike(self, calls: list[int]) -> bool:
        """Whether two calls read the same, one after the other."""
        mine, theirs = (
            inputs_of(side, call) for side, call in zip(self._sides, calls, strict=True)
        )
        return len(mine) == len(theirs) and all(
            self._error([row], [other]) <= BACKWARD * self._limit([row])
            for row, other in zip(mine, theirs, strict=True)
        )


def _ends(apart: list[Apart], number: int, stage: int) -> list[int]:
    """The rows of a side of what is apart at a stage."""
    return [row for _, at, rows in apart if at == stage for row in rows[number]]


def _before_copies(side: Side) -> dict[int, int]:
    tensors, calls = side.tensors, side.calls
    copies = side.which(calls.op, lambda op: traits_of(op).idle)
    rows = np.flatnonzero(tensors.output & tensors.parameter & (tensors.named != 0))
    last: dict[tuple[int, Place], int] = {}
    before: dict[int, int] = {}
    for row, name, place in zip(
        rows.tolist(), tensors.named[rows].tolist(), places_of(side, rows), strict=True
    ):
        if copies[tensors.call[row]] and (name, place) in last:
            before[row] = last[name, place]
        last[name, place] = row
    return before


def _read_forward(side: Side) -> Ints:
    """The rows of parameters that forward passes read."""
    tensors = side.tensors
    forward = side.in_phase("forward") & side.calls.leaf
    named = tensors.parameter & (tensors.named != 0) & ~tensors.output
    return np.flatnonzero(named & forward[tensors.call])


def _learnt_sizes(side: Side, learnt: Words) -> dict[int, int]:
    """The numbers of elements of parameters that get gradients, by their names."""
    tensors = side.tensors
    rows = np.flatnonzero(tensors.parameter & np.isin(tensors.named, learnt))
    return dict(zip(tensors.named[rows].tolist(), tensors.size[rows].tolist(), strict=True))


def _moves(side: Side, last: dict[tuple[Place, int, int], int]) -> Moves:
    tensors, rows = side.tensors, _read_forward(side)
    read = zip(places_of(side, rows), tensors.named[rows].tolist(), rows.tolist(), strict=True)
    return {
        (place, name): (row, last[place, PARAMETER, name])
        for place, name, row in read
        if row < last.get((place, PARAMETER, name), NONE)  # an average of them is read behind it
    }


def _reads(
    side: Side, last: dict[tuple[Place, int, int], int]
) -> dict[int, list[tuple[Place, int]]]:
    """A row for each step in which a model reads a parameter that is written to in none."""
    tensors, rows = side.tensors, _read_forward(side)
    written = {name for _, stage, name in last if stage == PARAMETER}
    rows = rows[~np.isin(tensors.named[rows], np.array(sorted(written), dtype=np.uint64))]
    reads: dict[int, dict[Place, int]] = {}
    names = tensors.named[rows].tolist()
    for name, place, row in zip(names, places_of(side, rows), rows.tolist(), strict=True):
        reads.setdefault(name, {}).setdefault(place, row)
    return {name: sorted(at.items()) for name, at in reads.items()}
