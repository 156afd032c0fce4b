# SPDX-License-Identifier: Apache-2.0
"""Two programs that are written differently: judged by what matters, not call by call.

What matters is what the models hand out, the loss, the gradients of parameters and what parameters
are after a step. Where all of it agrees, so do the programs. Else the first of it that does not is
followed back, on both sides, through tensors that meet nothing on the other, to the first calls
whose inputs all meet; those of which a result agrees again further on are only written otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.compare.cause.across_worlds import eased, finer, telling_nothing
from opscope.compare.cause.crossed_inputs import crossed
from opscope.compare.cause.cut_batches import GRADIENTS, accumulates, apart_uncompared
from opscope.compare.cause.detached import detached_alone
from opscope.compare.cause.done_elsewhere import done_elsewhere
from opscope.compare.cause.earlier_steps import EarlierSteps, read_crosswise
from opscope.compare.cause.gradient_paths import branching, one_sided, parted_by
from opscope.compare.cause.grown_errors import bursts, grown
from opscope.compare.cause.left_states import LeftStates, unlike_before
from opscope.compare.cause.partings import Parting
from opscope.compare.cause.penalties import without_penalties
from opscope.compare.cause.read_out import read_out_apart
from opscope.compare.cause.region_calls import regions_of, with_calls
from opscope.compare.cause.row_partings import parts_in_all_rows
from opscope.compare.cause.scrambled import by_order
from opscope.compare.cause.shared_results import SharedResults
from opscope.compare.cause.start_pairs import StartPairs, one_family
from opscope.compare.cause.trained_states import BACKWARD, TrainedStates
from opscope.compare.cause.walks import LEAST, Marks, Walk
from opscope.compare.cause.what_matters import (
    CLIPPED,
    FORWARD,
    GRADIENT,
    PARAMETER,
    settled,
)
from opscope.compare.pair.arguments import difference_of
from opscope.compare.pair.meetings import (
    COARSEST,
    Meetings,
    among_zeros,
    meet,
    normed,
    same_elements,
    vague,
)
from opscope.compare.pair.parameters import first_read, same_parameters
from opscope.compare.pair.partial_meetings import with_parts, with_rows
from opscope.compare.side.call_rows import (
    all_made,
    comes_of_products,
    handed_down,
    inputs_of,
    outputs_of,
)
from opscope.compare.side.lowering import worlds_apart
from opscope.operators.catalogue import traits_of
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.arrays import Bools, Ints
    from opscope.compare.cause.trained_states import Apart
    from opscope.compare.cause.what_matters import Place
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.pair.parameters import Names


LEAP = 16.0  # limits that roundings do not pass, though an operator makes much of them
CLOSE = 5e-7  # of itself: a number that is further off may just have hardly changed
MAX_NORMS = 8  # that what is apart may have come through unseen


def _ends(apart: list[Apart], number: int) -> list[int]:
    """The rows of a side of what is apart."""
    return sorted({row for *_, rows in apart for row in rows[number]})


class Regions:
    """Two programs' meetings, what matters in them, and where they part."""

    def __init__(self, pairing: Pairing, exceeds: Bools) -> None:
        self.pairing, self._exceeds = pairing, exceeds
        self.nothing = False  # whether the two show nothing that could be compared
        self._sides = (pairing.target, pairing.golden)
        self.meetings: Meetings = eased(self._sides, meet(pairing, self._leaf))
        self._whole = self.meetings
        self.unmet = self._whole.unmet(0), self._whole.unmet(1)
        self._loose = tuple(map(np.zeros_like, self.unmet))
        self._same = same_elements(*self._sides), same_elements(*self._sides[::-1])
        self._finer = finer(self._sides)
        silent = telling_nothing(self._sides)
        self._vague = (
            (vague(self._sides[0]) & ~self._same[0]) | silent[0],
            (vague(self._sides[1]) & ~self._same[1]) | silent[1],
        )
        self._results = SharedResults(pairing, self.meetings, self._leaf, self._vague)

    @cached_property
    def _leaf(self) -> tuple[Ints, Ints]:
        rows = [
            np.flatnonzero(side.calls.leaf[side.tensors.call] & (side.tensors.nan >= 0))
            for side in self._sides
        ]
        return rows[0], rows[1]

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
        loaded = self._same[0] & ~self._vague[0] & ~self._sides[0].tensors.output
        return bool(self.names) or bool((~self.unmet[0])[rows].any()) or bool(loaded.any())

    def _given(self, number: int) -> Ints:
        side, flow = self._sides[number], self.pairing.flows[number]
        return np.flatnonzero(
            ~side.tensors.output & (flow.producer < 0) & (side.tensors.size >= LEAST)
        )

    def _drawn_rows(self, number: int) -> Ints:
        side = self._sides[number]
        draws = side.which(side.calls.op, lambda op: traits_of(op).random)
        tensors = side.tensors
        made = tensors.output & side.calls.leaf[tensors.call] & (tensors.size >= LEAST)
        return np.flatnonzero(made & draws[tensors.call] & ~self._vague[number])

    @property
    def trained(self) -> bool:
        """Whether the two show trainings that can be held against each other."""
        return self._states.compared or bool(self._results.shown)

    @property
    def metric(self) -> tuple[int, int] | None:
        """The rows of the first number that both read out, of two that train nothing, and that is
        not the same.
        """
        return self._results.metric

    @property
    def beyond(self) -> bool:
        """Whether the two make something of their models' results that cannot be compared."""
        return self._results.beyond

    def parting(self, *, values: bool) -> Parting | None:
        """Where the two part first; None where all that matters agrees. values: whether those that
        are kept may be read.
        """
        parting = self._first_parting(values=values)
        return parting and by_order(self.pairing, self.meetings, parting, values=values)

    def _first_parting(self, *, values: bool) -> Parting | None:
        """The same, where nothing is known of the order of elements."""
        apart = self._with_results([*self._states.apart()])
        apart = self._results.borne_out(apart, self.unmet)
        seen = self._results.shown and not self._results.cut
        if not apart or (seen and self._states.barely(apart)):
            return self._by_left_states() or self._by_read_out()
        place, stage, _ = min(apart, key=lambda entry: entry[:2])
        if stage == GRADIENT and place in self._results.cut and (lost := self._lost_at(place)):
            return lost
        parting = self._followed_back(apart)
        if parting and self._results.may_be_metrics(parting.start, apart):
            return self._by_left_states()
        if parting and self._states.faint(apart, parting.start[0]):
            return self._by_left_states() or self._by_read_out()
        if parting is None:
            return None
        if parting.sized or not values:
            return self._in_all_rows(apart, parting)
        if all(map(self._inside, (0, 1), parting.start)):
            return parting  # a batch that is packed is so before its first layer
        # To follow back alone: that something is a part of a whole proves no result.
        parts, self._vague = with_parts(self.pairing, self.meetings, self._leaf, self._vague)
        return self._meeting_in(parts, apart) or parting

    def _inside(self, number: int, call: int) -> bool:
        """Whether a call of a side computes from what a layer of a model makes."""
        return comes_of_products(self._sides[number], self.pairing.flows[number].producer, call)

    def _meeting_in(self, parts: Meetings, apart: list[Apart]) -> Parting | None:
        """Where what is apart begins to be so, if what meets in part counts as meeting; None where
        nothing does.
        """
        if parts is self._whole:
            return None
        self.meetings, self.unmet = parts, (parts.unmet(0), parts.unmet(1))
        return self._followed_back(apart)

    def _in_all_rows(self, apart: list[Apart], parting: Parting) -> Parting:
        """A parting, or the later one at which rows part that agree until there: those in which the
        two part first may be rows that no loss counts.
        """
        if parting.stage != FORWARD:
            return parting
        known = self.meetings, self.unmet, self._loose
        rows = with_rows(self.pairing, self.meetings, self._leaf)
        mine, theirs = (self.unmet[number] & ~rows.unmet(number) for number in (0, 1))
        self._loose = mine, theirs
        later = self._meeting_in(rows, apart)
        found = self.meetings, mine
        if later and parts_in_all_rows(self.pairing, found, (parting, later), apart):
            return later
        self.meetings, self.unmet, self._loose = known
        return parting

    def _followed_back(self, apart: list[Apart]) -> Parting | None:
        """Where what is apart begins to be so."""
        place, stage, _ = min(apart, key=lambda entry: entry[:2])
        if stage == FORWARD and (left := self._left_before(place)):
            return left
        # What is known to part parts further up than where it is seen; by the finer limits
        # rounding may part, too.
        seen, whole = apart, self.unmet
        self.unmet = self._limited(0, stage), self._limited(1, stage)
        earlier = self._lasting(self._states.apart(self._finer), place)
        parting = self._earliest([*self._with_results(seen), *earlier])
        if parting is not None and (parting.grown or self._faint(parting, whole[0])):
            self.unmet = whole
            again = self._earliest(seen)
            parting = again if again and self._leaps(0, again.start[0]) else parting
        return parting

    def _with_results(self, apart: list[Apart]) -> list[Apart]:
        """What is apart, and the results that are, but for penalties that the other side's
        optimizer works in.
        """
        results = self._results.apart(self.meetings, self.unmet, self._states.sound(apart))
        return without_penalties(self.pairing, self.meetings, self.unmet, [*results, *apart])

    def _faint(self, parting: Parting, apart: Bools) -> bool:
        """Whether nothing that the target's start makes is apart by the whole limits, and what
        comes of both starts agrees again by the finer ones.
        """
        made = outputs_of(self._sides[0], parting.start[0]) if parting.heals else []
        return bool(made) and not apart[made].any()

    def _lasting(self, finer: Iterable[Apart], place: Place) -> list[Apart]:
        """What is apart by the finer limits before a place, if something still is in the last step
        that trains: what agrees again there is no reason for what parts later.
        """
        earlier = [entry for entry in finer if entry[0] < place]
        trained = [known for known in self._states.places if known < place]
        return earlier if any(entry[0] == trained[-1] for entry in earlier) else []

    def _earliest(self, apart: list[Apart]) -> Parting | None:
        """Where the first of what is apart begins to be so, and whether rounding explains that."""
        place = min(entry[0] for entry in apart)
        chosen = self._before_results([entry for entry in apart if entry[0] == place])
        stage = min(entry[1] for entry in chosen)
        chosen = [entry for entry in chosen if entry[1] == stage]
        chosen = [entry for entry in chosen if all_made(self._sides, entry[2])] or chosen
        ends = _ends(chosen, 0), _ends(chosen, 1)
        if stage == FORWARD:
            ends = ends[0][:1], ends[1][:1]  # what comes later may have a cause before the first
        trained = self._states.one_trains(place, ends) if stage == PARAMETER else None
        if trained is not None:
            region = (trained.mine,), (trained.theirs,)
            starts = trained.mine, trained.theirs
            return Parting(place, stage, starts, region, words=trained.words)
        parting = self._by_gradients(place, stage, ends) or self._located(place, stage, ends)
        if parting is None:
            return None
        if stage == PARAMETER:
            moved = self._states.times_moved(place, [rows for _, _, rows in chosen])
            parting = msgspec.structs.replace(parting, moved=moved)
        summed = not parting.words and accumulates(self._sides, self.unmet, parting.start)
        if summed and place in self._results.cut:
            parting = self._in_passes(place, ends) or parting
        return self._judged_by_growth(self._carried_back(parting, self._states.judged))

    def _left_before(self, place: Place) -> Parting | None:
        """Where models left other states behind, in a step before one whose results are apart."""
        left = unlike_before(self.pairing, self.unmet, self._vague, place)
        return self._located(left[0], PARAMETER, left[1:]) if left else None

    def _judged_by_growth(self, parting: Parting) -> Parting:
        """A parting, and whether rounding that grew until it is seen is all that there is to it."""
        if self.meetings.coarse and not bursts(
            self.pairing, parting.start, self.meetings, self._vague
        ):
            return msgspec.structs.replace(parting, grown=True)
        if parting.words or parting.row >= 0 or min(parting.start) < 0:
            return parting
        mine, theirs = (unmet & ~dim for unmet, dim in zip(self.unmet, self._vague, strict=True))
        grew = grown(self._sides, parting.start, self.meetings, (mine, theirs))
        return msgspec.structs.replace(parting, grown=grew or self._explained(parting))

    def _explained(self, parting: Parting) -> bool:
        """Whether the two begin to part at one operator of one input, called alike, that may make
        as much of roundings: the gradient of a softmax that is next to nothing. Not below products
        of which each reads what the other's other input is.
        """
        mine, theirs = parting.start
        if worlds_apart(*self._sides):
            return False  # what is alike there is known of few operators' arguments alone
        return (
            bool(parting.alike and not self._leaps(0, mine) and not self._exceeds[mine])
            and int(self.pairing.match.target[mine]) == theirs
            and one_family(self.pairing, mine, theirs)
            and not difference_of(self.pairing, mine, theirs)
            and crossed(self.pairing, self.meetings, parting.start) is None
        )

    def _leaps(self, number: int, call: int) -> bool:
        """Whether what a call makes is further apart than roundings may come to anywhere."""
        made = outputs_of(self._sides[number], call) if call >= 0 else []
        apart = [row for row in made if self.unmet[number][row] and not self._vague[number][row]]
        error, limit = self.meetings.error[number][apart], self.meetings.limit[number][apart]
        return not apart or bool((error > np.minimum(LEAP * limit, COARSEST)).any())

    def _carried_back(self, parting: Parting, judged: list[Names]) -> Parting:
        """Where a step came to leave behind what differs, if that is all that the calls read by
        which two programs part. judged: parameters that are judged where each step ends.
        """
        steps = EarlierSteps(self.pairing, judged)
        while True:
            apart = [unmet & ~dim for unmet, dim in zip(self.unmet, self._vague, strict=True)]
            for flags, rows in zip(
                apart, read_crosswise(self._sides, parting.start, self.meetings.limit), strict=True
            ):
                flags[rows] = True
            left = steps.left(parting.start, apart)
            trained = None if left else steps.trained(parting.start, apart, self._states.last)
            found = left or trained
            earlier = self._located(found[0], PARAMETER, found[1]) if found else None
            if earlier is None:
                return parting
            starts = earlier.start
            if not (steps.leaves(starts, apart) if left else steps.even(starts)):
                return parting
            parting = earlier

    def _by_left_states(self) -> Parting | None:
        """Where all that training shows agrees: a call that leaves another state behind."""
        left = LeftStates(self.pairing, self.meetings, self.unmet[0], self._vague[0]).first()
        if left is None:
            return None
        calls = self.pairing.target.calls
        place = int(calls.rank[left[0]]), int(calls.step[left[0]])
        return Parting(place, PARAMETER, left, ((left[0],), (left[1],)), alike=True)

    def _by_read_out(self) -> Parting | None:
        """Where all that training shows agrees: a number that both read out and is not the same."""
        results = self._results.compared(self.unmet)
        few = not self._states.mostly_compared and not results
        both, apart = read_out_apart(self.pairing, self.meetings, self.unmet, alone=few)
        self.nothing = not (both or self._states.compared or results)
        parting = self._located(*apart) if apart else None
        if parting is None or self._judged_by_growth(parting).grown:
            return None
        return self._carried_back(parting, [])

    def _lost_at(self, place: Place) -> Parting | None:
        """Where gradients of a batch that is cut part, the loss behind them that both read out, if
        it is not the same.
        """
        _, apart = read_out_apart(self.pairing, self.meetings, self.unmet, alone=True)
        return self._located(*apart) if apart and apart[0] <= place else None

    def _before_results(self, apart: list[Apart]) -> list[Apart]:
        """What of a step comes before any result that is apart, all of it where nothing does: an
        optimizer may step before another loss is computed.
        """
        calls = self.pairing.target.tensors.call
        results = [calls[rows[0][0]] for _, stage, rows in apart if stage == FORWARD and rows[0]]
        if not results:
            return apart
        first = min(results)
        early = [
            entry
            for entry in apart
            if entry[1] != FORWARD
            and entry[2][0]
            and all(calls[row] < first for row in entry[2][0])
        ]
        return early or apart

    def _by_gradients(
        self, place: Place, stage: int, ends: tuple[list[int], list[int]]
    ) -> Parting | None:
        """What gradients tell where they part first: that they flow through a layer on one side
        alone; and all that they tell where a batch is cut otherwise.
        """
        telling = stage == GRADIENT or (stage != FORWARD and self._alone(place))
        layer = one_sided(self.pairing, self.meetings, self._vague[0], place) if telling else None
        if layer is None and stage == GRADIENT:
            layer = detached_alone(self.pairing, self.meetings, place)
        if layer is not None:
            return parted_by(self._sides, layer, place, stage)
        if stage != GRADIENT or place not in self._results.cut:
            return None
        parted = apart_uncompared(self.pairing, self.unmet, place) or self._in_passes(place, ends)
        if parted is not None:
            return parted
        located = self._located(place, stage, ends)
        if located is not None:
            return msgspec.structs.replace(located, words=GRADIENTS, compared=False)
        mine, theirs = (
            int(side.tensors.call[rows[0]]) for side, rows in zip(self._sides, ends, strict=True)
        )
        region = (mine,), (theirs,)
        return Parting(place, stage, (mine, theirs), region, words=GRADIENTS, compared=False)

    def _in_passes(self, place: Place, ends: tuple[list[int], list[int]]) -> Parting | None:
        """Where the passes of parts of a batch part from the other side's, which they meet together
        until there: at forward calls that compute, since how a batch is cut tells nothing.
        """
        walks = self._walks(place, GRADIENT, ends)
        starts = [
            [call for call in walk.starts() if self._computes(number, call)]
            for number, walk in enumerate(walks)
        ]
        starts[0] = [call for call in starts[0] if walks[0].order(call)[2]]
        alike = [
            call
            for call in starts[1]
            if any(one_family(self.pairing, mine, call) for mine in starts[0])
        ]
        starts[1] = alike or starts[1]
        return self._of_starts(place, GRADIENT, walks, starts) if all(starts) else None

    def _computes(self, number: int, call: int) -> bool:
        """Whether a call of a side computes in a forward pass, or takes a part of what a model
        computed, and the largest of it is apart.
        """
        side, made = self._sides[number], outputs_of(self._sides[number], call)
        forward = side.words.get(int(side.calls.phase[call])) == "forward"
        largest = max(made, key=lambda row: int(side.tensors.size[row]), default=NONE)
        computes = not traits_of(side.operator(call)).idle or self._inside(number, call)
        return forward and computes and largest != NONE and bool(self.unmet[number][largest])

    @cached_property
    def _states(self) -> TrainedStates:
        return TrainedStates(self.pairing, self.meetings, self.names)

    def _alone(self, place: Place) -> bool:
        """Whether parameters that both sides have get gradients on one side alone; what is written
        to there gets one, known or not.
        """
        for names in self.names:
            graded, written = (
                [
                    all((place, stage, name) in known for name in some)
                    for known, some in zip(self._states.last, names, strict=True)
                ]
                for stage in (GRADIENT, PARAMETER)
            )
            if graded[0] != graded[1] and written[0] != written[1]:
                return True
        return False

    def _limited(self, number: int, stage: int) -> Bools:
        """What does not meet by the limits for tensors before a stage."""
        if stage >= CLIPPED:
            return self.meetings.unmet(number, BACKWARD)
        side = self._sides[number]
        forward = side.in_phase("forward")
        return np.where(
            forward[side.tensors.call],
            self.meetings.unmet(number, self._finer),
            self.meetings.unmet(number),
        )

    # -- where it begins ---------------------------------------------------------------------------

    def _located(
        self, place: Place, stage: int, ends: tuple[list[int], list[int]]
    ) -> Parting | None:
        """Where what matters and is apart begins to be so. Not at a product that reads what a norm
        made on both sides, if what the norm read is apart already: of what norms leave, statistics
        tell next to nothing.
        """
        parting = self._begun(place, stage, ends)
        for _ in range(MAX_NORMS):
            rows = self._normed_inputs(parting) if parting else None
            if rows is None:
                break
            before = self.unmet
            chains = [
                handed_down(side, flow.producer, row)
                for side, flow, row in zip(self._sides, self.pairing.flows, rows, strict=True)
            ]
            flags = [
                unmet | np.isin(flow.state, flow.state[chain])
                for unmet, flow, chain in zip(before, self.pairing.flows, chains, strict=True)
            ]
            self.unmet = flags[0], flags[1]
            earlier = self._begun(place, stage, ends)
            norms = [
                int(flow.producer[chain[-1]])
                for flow, chain in zip(self.pairing.flows, chains, strict=True)
            ]
            if earlier is None or not all(map(int.__lt__, earlier.start, norms)):
                self.unmet = before
                break
            parting = earlier
        return parting

    def _normed_inputs(self, parting: Parting) -> tuple[int, int] | None:
        """The rows in which products of both sides read what a norm made, and agree; None where
        they do not.
        """
        if min(parting.start) < 0:
            return None
        rows = []
        for side, call, of_norms in zip(self._sides, parting.start, self._of_norms, strict=True):
            read = [row for row in inputs_of(side, call) if of_norms[row]]
            if not traits_of(side.operator(call)).contraction or len(read) != 1:
                return None
            rows.extend(read)
        partner = int(self.meetings.partner[0][rows[0]])
        states = self.pairing.flows[1].state
        agree = partner >= 0 and not self.unmet[0][rows[0]] and states[partner] == states[rows[1]]
        return (rows[0], rows[1]) if agree else None

    @cached_property
    def _of_norms(self) -> tuple[Bools, Bools]:
        return normed(self._sides[0]), normed(self._sides[1])

    def _begun(self, place: Place, stage: int, ends: tuple[list[int], list[int]]) -> Parting | None:
        walks = self._walks(place, stage, ends)
        starts = [walk.starts() for walk in walks]
        if stage == GRADIENT and place not in self._results.cut:
            for number in (0, 1):
                orders = map(walks[number].order, starts[number])
                healed = not any(within or lasts for within, _, lasts in orders)
                if healed and walks[1 - number].begins_behind(starts[1 - number]):
                    # what agrees again, as what one side masks, is no reason for gradients to part
                    walk = self._walk(number, stage, ends[number], backward=True, strictly=True)
                    walks[number], starts[number] = walk, walk.starts() or starts[number]
        return self._of_starts(place, stage, walks, starts)

    def _walks(self, place: Place, stage: int, ends: tuple[list[int], list[int]]) -> list[Walk]:
        # what passes of parts of a batch compute was not compared before their gradients
        backward = None if place in self._results.cut else stage == GRADIENT
        return [self._walk(number, stage, ends[number], backward=backward) for number in (0, 1)]

    def _of_starts(
        self, place: Place, stage: int, walks: list[Walk], starts: list[list[int]]
    ) -> Parting | None:
        """Where two programs part, of all calls at which they may."""
        pairs = StartPairs(self.pairing, self.meetings, self.unmet, self._vague, self.names)
        if starts[0] and starts[1] and self._misses(walks, starts[0][0]):
            mine, theirs = starts[0][0], min(starts[1])
        else:
            mine, theirs = pairs.partners(walks, *starts)
        prepared = [
            walk.preparing(some, start)
            for walk, some, start in zip(walks, starts, (mine, theirs), strict=True)
        ]
        if all(prepared):
            mine, theirs = pairs.partners(walks, *prepared)
        elif any(prepared):
            mine, theirs = pairs.prepared_alike(walks, starts) or (mine, theirs)
        built = [
            walk.building(some, start)
            for walk, some, start in zip(walks, starts, (mine, theirs), strict=True)
        ]
        if built[0].keys() & built[1].keys():
            size = min(built[0].keys() & built[1].keys())
            mine, theirs = pairs.partners(walks, built[0][size], built[1][size])
        if mine == NONE and theirs == NONE:
            return None
        both = mine >= 0 and theirs >= 0
        alike = pairs.shared(mine, theirs)[1] if both else False
        products = crossed(self.pairing, self.meetings, (mine, theirs)) if both else None
        regions = regions_of(walks, starts, (mine, theirs), pairs)
        if products and products != (mine, theirs):
            # either the fault, or written for a result that is turned: nothing tells here
            made = [walk.makers(call) for walk, call in zip(walks, products, strict=True)]
            regions = with_calls(regions, (products[0], *made[0]), (products[1], *made[1]))
        if both:
            known = self.pairing, self.meetings, self.unmet
            regions = with_calls(regions, *done_elsewhere(*known, (mine, theirs), stage))
        if stage == GRADIENT and both and not pairs.comparable(mine, theirs):
            path = branching(self.pairing, self.meetings, self._vague[0], place)
            regions = with_calls(regions, (path.mine,), (path.theirs,)) if path else regions
        row = walks[0].given[mine] if self._misses(walks, mine) else NONE
        return Parting(
            place,
            stage,
            (mine, theirs),
            (regions[0], regions[1]),
            row,
            walks[0].last if mine < 0 else mine,
            crossed=products == (mine, theirs),
            alike=alike,
            heals=both and not (walks[0].order(mine)[2] or walks[1].order(theirs)[2]),
            sized=not both or pairs.comparable(mine, theirs) or not pairs.order(mine, theirs),
        )

    def _misses(self, walks: list[Walk], start: int) -> bool:
        """Whether what a start was given differs from something: golden is given another of as many
        elements, or it is trained; a mask that is kept in a buffer may be made on the other side.
        """
        row = walks[0].given.get(start, NONE)
        if row < 0:
            return False
        target, golden = (side.tensors for side in self._sides)
        other = {int(golden.size[golden_row]) for golden_row in walks[1].given.values()}
        return int(target.size[row]) in other or target.named[row] in walks[0].learnt

    def _walk(
        self,
        number: int,
        stage: int,
        ends: Iterable[int],
        *,
        backward: bool | None,
        strictly: bool = False,
    ) -> Walk:
        """A side followed back; strictly: through its backward pass alone."""
        side = self._sides[number]
        known = np.array(
            sorted({name for names in self.names for name in names[number]}), dtype=np.uint64
        )
        flags = self.unmet[number].copy(), self._vague[number]
        alone = self._states.clipped_alone[number]
        flags[0][settled(side, self.pairing.flows[number], known, alone, stage)] = False
        if strictly:
            made = self.pairing.flows[number].producer
            forward = (made >= 0) & side.in_phase("forward")[np.maximum(made, 0)]
            flags = flags[0] & ~forward, flags[1] & ~forward
        flags[0][list(ends)] = True
        mirrored = self._results.turned(number, self._finer)
        loose = (side.tensors.size < LEAST) & (self.meetings.error[number] > CLOSE)
        loose |= self._loose[number]
        agreeing = (~self.unmet[number] & ~loose) | mirrored
        scattered = among_zeros(self._sides, self.meetings, number)
        partly = self.meetings is not self._whole
        marks = Marks(*flags, agreeing, self._same[number], scattered, partly)
        updating = stage == PARAMETER
        return Walk(self.pairing, number, marks, list(ends), backward=backward, updating=updating)
