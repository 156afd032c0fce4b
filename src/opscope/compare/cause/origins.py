# SPDX-License-Identifier: Apache-2.0
"""Following a difference back to the call that made it, for the few calls where one begins.

Vector operations have found the calls where something happens (verdict.allowance.Measures); this
walks from them against the data flow, in the order of the calls, so that every origin is known
before anything it reaches is looked at.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.cause.causes import (
    AMPLIFIED,
    ARGUMENT,
    ARRIVED,
    COMPUTED,
    EXTRA,
    MISSING,
    REWIRED,
    SHAPED,
    Cause,
)
from opscope.compare.cause.collectives import Collectives, Place
from opscope.compare.cause.flags import Signs
from opscope.compare.cause.optimizer_updates import Updates
from opscope.compare.cause.parameter_shapes import Shapes
from opscope.compare.cause.random_draws import Draws
from opscope.compare.cause.reordered_sums import Sums
from opscope.compare.cause.sudden_errors import leaps
from opscope.compare.cause.through_unpaired import Lonely
from opscope.compare.cause.unused_initialisation import dead_calls
from opscope.compare.pair.pairing import Pairing
from opscope.compare.pair.tensors import SAME, UNKNOWN
from opscope.compare.pair.unpaired import enclosing
from opscope.compare.side.conditions import SLACK, STATISTICAL
from opscope.compare.verdict.allowance import Measures, forward_calls
from opscope.run.hashes import distinct, mixed
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.arrays import Ints

ROUNDING = 2.0**-24  # of float32 statistics
MAX_CAUSES = 4096
AGREES = 1e-4  # relative error between frameworks, where the type is fine enough
MAX_BEHIND = 2_000
OTHER_VIEW = "reads the same tensor through another view: transposed, or in another order"


class Search:
    """Finds the causes of a pairing. differing says how two calls' arguments differ, "" when they
    do not; elsewhere: collectives into which ranks that are not here put what differs.
    """

    def __init__(
        self,
        pairing: Pairing,
        measures: Measures,
        differing: Callable[[int, int], str],
        elsewhere: frozenset[Place] = frozenset(),
    ) -> None:
        self.pairing, self.measures, self._elsewhere = pairing, measures, elsewhere
        self.calls = pairing.target.calls
        self._differing = differing
        self.causes: list[Cause] = []
        self._culprits: set[int] = set()
        self._culprits_golden: set[int] = set()
        self._arrived: set[tuple[int, int]] = set()
        self._viewed: set[int] = set()  # views of what arrived unlike
        self._tainted: dict[int, bool] = {}
        # those that are not, the last call first: a cause before them may change that
        self._free: list[int] = []
        self._reordered: set[int] = set()
        self._shapes = Shapes(pairing)
        self._shifted: set[int] = set()  # ranks of which one side drew more random numbers
        self._reached: set[int] = set()  # ranks that a difference reached through a collective
        self._signs = Signs(pairing, measures)
        self._updates = Updates(self._signs)
        self._lonely = Lonely(pairing)
        self._forward = forward_calls(pairing.target)

    # -- where something happens -------------------------------------------------------------------

    def run(self) -> list[Cause]:
        """All causes, in the order of the target's calls."""
        for call in self._events():
            if len(self.causes) >= MAX_CAUSES:
                break
            cause = self._judge(call)
            if cause is None:
                continue
            if self._sent_by_another(cause):
                self._culprits.add(call)
                self._reached.add(int(self.calls.rank[call]))
            else:
                self._accept(cause)
        for cause in self._leaps():
            self._accept(cause)
        return self.causes

    @property
    def dead(self) -> tuple[frozenset[int], frozenset[int]]:
        """Calls of either side that differ, or stand alone, and reach nothing."""
        lonely = dead_calls(self.pairing, 1, self._signs.differing, self._signs.overwritten)
        return frozenset(np.flatnonzero(self._signs.dead).tolist()), frozenset(
            np.flatnonzero(lonely).tolist()
        )

    def _opaque(self) -> list[int]:
        """Modules and APIs that part from equal inputs though nothing recorded inside them differs:
        what did it was not recorded.
        """
        measures = self.measures
        wanted = (
            measures.agree
            & measures.exceeds
            & ~self.calls.leaf
            & (self.pairing.match.target >= 0)
            & ~measures.unread
        )
        if not wanted.any() or not (self.calls.parent >= 0).any():
            return []
        explained = enclosing(
            self.calls,
            np.flatnonzero(self.calls.leaf & (measures.differs | (self.pairing.match.target < 0))),
        )
        lost = enclosing(
            self.pairing.golden.calls,
            np.flatnonzero(self.pairing.golden.calls.leaf & (self.pairing.match.golden < 0)),
        )
        explained |= {int(self.pairing.match.golden[call]) for call in lost}
        opaque: list[int] = []
        for call in np.flatnonzero(wanted).tolist()[::-1]:
            if call not in explained:
                opaque.append(call)
                explained |= enclosing(self.calls, np.array([call]))
        return opaque

    def _leaps(self) -> list[Cause]:
        """For each rank without a cause the first call at which values leap apart.

        What no rule explains must still be said: values that are worlds apart are never called
        noise.
        """
        rows = self.pairing.rows
        if not len(self.calls):
            return []
        called = {int(self.calls.rank[cause.target]) for cause in self.causes} | self._reached
        if called.issuperset(distinct(self.calls.rank).tolist()):
            return []
        chosen = np.flatnonzero(
            self._signs.unequal
            & ~self._signs.overwritten
            & self.calls.leaf[np.maximum(rows.target_call, 0)]
        )
        chosen = chosen[
            ~np.isnan(rows.error[chosen])
            & ~np.isin(rows.target_call[chosen], list(self._reordered))
        ]
        if self.pairing.between is not None:
            chosen = chosen[
                np.array(
                    [not self._composed_otherwise(row) for row in chosen.tolist()], dtype=np.bool_
                )
            ]
        if len(chosen):
            chosen = chosen[~self._signs.named_again[rows.target_call[chosen]]]
            calls = rows.target_call[chosen]
            alike = np.ones(len(chosen), dtype=np.bool_)
            for number in np.flatnonzero(self._forward[calls] >= 0).tolist():
                alike[number] = not self._shapes.recorded_otherwise(
                    int(calls[number]), int(self._forward[calls[number]])
                )
            chosen = chosen[alike]
        chosen = chosen[~np.isin(self.calls.rank[rows.target_call[chosen]], list(called))]
        causes = []
        for row in leaps(self.pairing, self.measures, chosen, self._signs.steep):
            call = int(rows.target_call[row])
            kind = COMPUTED if rows.output[row] else REWIRED
            causes.append(
                Cause(
                    kind,
                    call,
                    int(self.pairing.match.target[call]),
                    row if kind == REWIRED else NONE,
                    sure=False,
                )
            )
        return causes

    def _sent_by_another(self, cause: Cause) -> bool:
        """Whether a collective only hands on what another rank put in: there, a difference stands
        before the same collective.
        """
        if cause.kind not in {COMPUTED, AMPLIFIED} or not self._collectives.flags[cause.target]:
            return False
        if self._elsewhere and self._collectives.place(cause.target) in self._elsewhere:
            return True
        met = self._collectives.partners(cause.target)
        return any(
            first < met[rank] and self._put_in_unequal(met[rank])
            for rank, first in self._signs.first_difference.items()
            if rank in met
        )

    def _put_in_unequal(self, call: int) -> bool:
        return any(
            self._signs.unequal[row]
            for row in self._signs.rows_of(call)
            if not self.pairing.rows.output[row]
        )

    @cached_property
    def _collectives(self) -> Collectives:
        return Collectives(self.pairing.target)

    def _events(self) -> list[int]:
        """Leaf calls at which a difference may begin: too large an output, an input without a
        matched producer.
        """
        measures, leaf = self.measures, self.calls.leaf
        exact = (
            measures.agree & measures.differs & (self._signs.arguments_differ | self._signs.random)
        )
        exact[list(self._shapes.readers)] = True
        wanted = (
            (measures.exceeds | exact) & (self.pairing.match.target >= 0) & ~self._signs.allocators
        )
        wanted &= leaf & ~self._signs.named_again & ~self._signs.dead
        wanted[self.pairing.rows.target_call[self._telling]] = True
        return sorted({*np.flatnonzero(wanted).tolist(), *self._opaque(), *self._updates.calls})

    @cached_property
    def _telling(self) -> Ints:
        """Input rows that differ without a matched producer and may be causes: each state that came
        from outside once.

        Left out is what came from outside after something was computed otherwise, and is no
        parameter of the first pass nor another view.
        """
        rows, signs = self.pairing.rows, self._signs
        chosen = signs.unexplained
        if len(chosen):
            chosen = chosen[(self.calls.leaf & ~signs.named_again)[rows.target_call[chosen]]]
        calls, outside = rows.target_call[chosen], signs.outside[chosen]
        late = calls > signs.first_computed[calls]
        own, viewed = (
            signs.begins_forward[calls] & signs.owned[chosen],
            signs.viewed_otherwise[chosen],
        )
        flags = np.uint8(4) * outside + np.uint8(2) * own + viewed
        wanted = ~(late & outside) | own | viewed
        chosen, flags = chosen[wanted], flags[wanted]
        _, first = np.unique(
            mixed(signs.identities(chosen), flags.astype(np.uint64)), return_index=True
        )
        once = np.zeros(len(chosen), dtype=np.bool_)
        once[first] = True
        telling: Ints = chosen[once | (flags < 4)]
        return telling

    # -- one call ----------------------------------------------------------------------------------

    def _judge(self, call: int) -> Cause | None:
        golden = int(self.pairing.match.target[call])
        if golden < 0:
            return None
        if call in self._updates.calls:
            return self._updated(call, golden)
        words = self._words(call)
        if self.measures.agree[call] or (self._signs.random[call] and self._fills(call)):
            return None if self._behind(call) else self._from_equal(call, golden, words)
        begun = self._begins(call) or self._shaped(call, golden, words)
        if begun is not None or not self._exceeds(call) or self._is_tainted(call):
            return begun
        if self.measures.unread[call] and self._signs.earlier_difference(call):
            return None
        if not words and self._signs.guessed(call) and not self.measures.in_error[call]:
            return self._made(call, golden)
        made = AMPLIFIED if self.measures.in_error[call] else COMPUTED
        return Cause(
            ARGUMENT if words else made,
            call,
            golden,
            sure=not self.measures.unread[call],
            words=words,
        )

    def _updated(self, call: int, golden: int) -> Cause | None:
        """The cause of a step of an optimizer that moves parameters otherwise, where nothing before
        it explains that.
        """
        words = "" if self.causes or self._is_tainted(call) else self._updates.unlike(call)
        return Cause(COMPUTED, call, golden, words=(words,)) if words else None

    def _words(self, call: int) -> tuple[str, ...]:
        """How the arguments of a call differ from golden's, in words; nothing where they do not."""
        difference = (
            self._differing(call, int(self.pairing.match.target[call]))
            if self._signs.arguments_differ[call]
            else ""
        )
        return (difference,) if difference else ()

    def _from_equal(self, call: int, golden: int, words: tuple[str, ...]) -> Cause | None:
        """The cause of what a call makes of inputs that are equal."""
        if words and self._signs.random[call] and self._shapes.draws(call):
            self._culprits.add(call)
            return None
        return (
            Cause(ARGUMENT, call, golden, words=words)
            if words
            else self._skipped(call, golden) or self._made(call, golden)
        )

    def _made(self, call: int, golden: int) -> Cause | None:
        if self._signs.random[call]:
            return self._drawn(call, golden)
        if not self._exceeds(call):
            return None
        hidden = self._hidden(call)
        if hidden is not None:
            return hidden
        return None if self._signs.vague(call) else Cause(COMPUTED, call, golden)

    def _hidden(self, call: int) -> Cause | None:
        """The last call before it that differs from golden's, or that only one side runs, where
        what it did is not seen in statistics.
        """
        match, (mine, theirs) = self.pairing.match.target, self._signs.producers
        waiting, seen = [-call], set[int]()
        while waiting and len(seen) < MAX_BEHIND:
            at = -heapq.heappop(waiting)
            words = self._words(at) if at != call else ()
            if words:
                return Cause(ARGUMENT, at, int(match[at]), words=words)
            for row in self._signs.guessed(at):
                producer, golden_producer = int(mine[row]), int(theirs[row])
                cause = (
                    self._alone(at, row)
                    if producer != golden_producer
                    and (producer < 0 or match[producer] != golden_producer)
                    else None
                )
                if cause is not None:
                    return cause
                if producer >= 0 and match[producer] == golden_producer and producer not in seen:
                    seen.add(producer)
                    heapq.heappush(waiting, -producer)
        return None

    def _alone(self, call: int, row: int) -> Cause | None:
        """The call of one side alone, more than a view, through which an input came that statistics
        call equal.
        """
        for producers, target in zip(self._signs.producers, (True, False), strict=True):
            calls, _ = self._lonely.above(int(producers[row]), target=target)
            first = self._lonely.foremost(calls, target=target) if calls else NONE
            if calls and self._lonely.computes(first, target=target):
                return (
                    Cause(EXTRA, first, NONE, row) if target else Cause(MISSING, call, first, row)
                )
        return None

    def _exceeds(self, call: int) -> bool:
        """Whether a call's output is further off than allowed, also of inputs that are no closer
        than the results before it.
        """
        if not self.measures.exceeds[call] or self._shapes.recorded_otherwise(
            call, int(self._forward[call])
        ):
            return False
        if not self._signs.blurred(call):
            return True
        return bool(
            self.measures.out_error[call]
            > SLACK * STATISTICAL * max(self._signs.noise(call), ROUNDING)
        )

    def _shaped(self, call: int, golden: int, words: tuple[str, ...]) -> Cause | None:
        """The first reader of each parameter of another shape, which no difference of values
        explains.
        """
        row = self._shapes.told_at(call)
        if row < 0:
            return None
        return (
            Cause(ARGUMENT, call, golden, words=words)
            if words
            else Cause(SHAPED, call, golden, row)
        )

    def _fills(self, call: int) -> bool:
        """Whether nothing that a call reads is known to differ: what it overwrites need not have
        been read.
        """
        rows = self.pairing.rows
        return all(
            rows.status[row] in (SAME, UNKNOWN)
            for row in self._signs.rows_of(call)
            if not rows.output[row]
        )

    def _behind(self, call: int) -> bool:
        """Whether inputs that only statistics call equal come from an origin: a transposed tensor
        has the statistics it had.
        """
        rows, whole = self.pairing.rows, self.pairing.flows[0].whole
        waiting, seen = [call], set[int]()
        while waiting and self._culprits and len(seen) < MAX_BEHIND:
            at = waiting.pop()
            seen.add(at)
            inputs = [
                row
                for row in self._signs.rows_of(at)
                if not rows.output[row] and rows.target[row] >= 0 and not whole[rows.target[row]]
            ]
            above = {int(self._signs.producers[0][row]) for row in inputs} - {NONE}
            if above & self._culprits:
                return True
            waiting.extend(above - seen)
        return False

    def _skipped(self, call: int, golden: int) -> Cause | None:
        """The calls that golden runs inside a module, where the target runs none, though it
        recorded such calls elsewhere.
        """
        calls = self.pairing.golden.calls
        if not self.calls.leaf[call] or calls.leaf[golden]:
            return None
        inside = np.flatnonzero(
            (calls.parent == calls.index[golden])
            & (calls.process == calls.process[golden])
            & calls.leaf
        )
        inside = inside[np.isin(calls.level[inside], np.unique(self.calls.level))]
        return (
            Cause(MISSING, call, self._lonely.foremost(set(inside.tolist()), target=False))
            if len(inside)
            else None
        )

    def _drawn(self, call: int, golden: int) -> Cause | None:
        """The cause of other random numbers: the first draw that one side alone made before, else
        the first that differs; told once.
        """
        if not self._draws.default[call]:
            return Cause(COMPUTED, call, golden)
        self._culprits.add(call)
        rank = int(self.calls.rank[call])
        mine, theirs = self._draws.before(call, golden)
        if (
            rank in self._shifted
            or self._draws.resized(call)
            or mine in self._culprits
            or theirs in self._culprits_golden
        ):
            return None
        self._shifted.add(rank)
        words = ("all random numbers that are drawn after it differ",)
        if mine < 0 and theirs < 0:
            return Cause(COMPUTED, call, golden)
        return (
            Cause(EXTRA, mine, NONE, words=words)
            if mine >= 0
            else Cause(MISSING, call, theirs, words=words)
        )

    @cached_property
    def _draws(self) -> Draws:
        return Draws(self.pairing)

    def _begins(self, call: int) -> Cause | None:
        """The cause of an input that differs without a matched producer, when nothing upstream
        explains it.
        """
        for row in self._unexplained_of.get(call, ()):
            mine, theirs = int(self._signs.producers[0][row]), int(self._signs.producers[1][row])
            cause = (
                self._arrival(call, row) if mine < 0 and theirs < 0 else self._structural(call, row)
            )
            if cause is not None:
                return cause
        return None

    @cached_property
    def _unexplained_of(self) -> dict[int, list[int]]:
        by_call: dict[int, list[int]] = defaultdict(list)
        for row in self._telling.tolist():
            by_call[int(self.pairing.rows.target_call[row])].append(row)
        return by_call

    def _identity(self, row: int) -> tuple[int, int]:
        """What makes two rows the same difference: the version on the target's side, else the
        states on both.
        """
        rows, flows, tensors = self.pairing.rows, self.pairing.flows, self.pairing.target.tensors
        target_row = int(rows.target[row])
        if tensors.version[target_row] >= 0:
            return int(self.calls.process[tensors.call[target_row]]), int(
                tensors.version[target_row]
            )
        return int(flows[0].state[target_row]), int(flows[1].state[rows.golden[row]])

    def _arrival(self, call: int, row: int) -> Cause | None:
        """A tensor that differs and that nobody recorded produced."""
        if self._identity(row) in self._arrived:
            return None
        if self._signs.viewed_otherwise[row]:
            return Cause(
                REWIRED, call, int(self.pairing.match.target[call]), row, words=(OTHER_VIEW,)
            )
        earlier = self._computed_before(call)
        lonely = None if earlier or self._forward[call] < 0 else self._lonely_before(call, row)
        if lonely is not None:
            return lonely
        fresh = bool(self._signs.begins_forward[call] and self._signs.owned[row])
        if earlier and not fresh:
            return None
        self._arrived.add(self._identity(row))
        reader = min(self._computing(call), self._first_to_compute(call, row))
        golden = int(self.pairing.match.target[reader])
        return Cause(
            ARRIVED, reader, golden, row, sure=fresh or not earlier, words=self._words(reader)
        )

    def _lonely_before(self, call: int, row: int) -> Cause | None:
        """The first call of its step that one side alone runs, where nobody recorded what made an
        input differ: a gradient, mostly.
        """
        if self.causes:
            return None
        golden = int(self.pairing.match.target[call])
        lonely = [
            self._lonely.first_before(call, target=True),
            self._lonely.first_before(golden, target=False),
        ]
        if lonely[0] >= 0:
            return Cause(EXTRA, lonely[0], NONE, row, sure=False)
        return Cause(MISSING, call, lonely[1], row, sure=False) if lonely[1] >= 0 else None

    def _computed_before(self, call: int) -> bool:
        """Whether anything of its rank differed before a call but views of what arrived unlike."""
        return self._signs.earlier_difference(call) and any(
            earlier not in self._viewed for earlier in self._signs.differing_before(call)
        )

    def _computing(self, call: int) -> int:
        """The call itself, or the first that computes with what a view of it handed on."""
        flow, tensors = self.pairing.flows[0], self.pairing.target.tensors
        while self._signs.views[call]:
            self._culprits.add(call)
            self._viewed.add(call)
            rows = np.flatnonzero((flow.producer == call) & self.calls.leaf[tensors.call])
            readers = tensors.call[rows][self.pairing.match.target[tensors.call[rows]] >= 0]
            if not len(readers):
                break
            call = int(readers.min())
        return call

    def _first_to_compute(self, call: int, row: int) -> int:
        """Where a view reads it, the first call that computes with the same content, which is all
        that a dump may tell it by.
        """
        tensors, state = self.pairing.target.tensors, self.pairing.flows[0].state
        if not self._signs.views[call] or not state[self.pairing.rows.target[row]]:
            return int(np.iinfo(np.int64).max)
        same = np.flatnonzero(
            (state == state[self.pairing.rows.target[row]])
            & ~tensors.output
            & self.calls.leaf[tensors.call]
        )
        same = tensors.call[same][
            (tensors.call[same] > call)
            & (self.calls.rank[tensors.call[same]] == self.calls.rank[call])
        ]
        same = same[~self._signs.views[same] & (self.pairing.match.target[same] >= 0)]
        return int(same.min()) if len(same) else int(np.iinfo(np.int64).max)

    def _structural(self, call: int, row: int) -> Cause | None:
        """An input that comes from another call than on the golden side."""
        mine, theirs = int(self._signs.producers[0][row]), int(self._signs.producers[1][row])
        if self._only_reordered(call) or self._composed_otherwise(row):
            return None
        extra, carried = self._alone_above(mine, target=True)
        missing, owed = self._alone_above(theirs, target=False)
        if self.pairing.rows.error[row] <= SLACK * max(carried, owed):
            return None  # no worse than what those calls were given
        if self._signs.drifts_alone(row) and not (extra or missing):
            return None
        if extra:
            if self._culprits.intersection(extra):
                return None
            partner = self._lonely.foremost(missing, target=False) if missing else NONE
            return Cause(EXTRA, self._lonely.foremost(extra, target=True), partner, row)
        if missing:
            absent = self._culprits_golden.intersection(missing)
            return (
                None
                if absent
                else Cause(MISSING, call, self._lonely.foremost(missing, target=False), row)
            )
        return self._rewired(call, row)

    def _rewired(self, call: int, row: int) -> Cause | None:
        """An input of another origin than on the golden side, with no call of one side alone on its
        way.
        """
        golden = int(self.pairing.match.target[call])
        mine, theirs = int(self._signs.producers[0][row]), int(self._signs.producers[1][row])
        if mine >= 0 and theirs >= 0:
            return Cause(REWIRED, call, golden, row, words=(self._wiring(call),))
        over, target = self._lonely.written_over(call, mine, theirs)
        if over >= 0:
            return Cause(EXTRA, over, NONE, row) if target else Cause(MISSING, call, over, row)
        if self._signs.earlier_difference(call):
            return None
        words = self._other_type(row)
        lonely = None if words else self._lonely_before(call, row)
        return lonely or Cause(
            REWIRED,
            call,
            golden,
            row,
            sure=False,
            words=(words or "reads a tensor of another origin",),
        )

    def _composed_otherwise(self, row: int) -> bool:
        """Whether two frameworks only come to the same result by other intermediate ones (a sum of
        three beside two sums of two).
        """
        if self.pairing.between is None or self.pairing.rows.output[row]:
            return False
        call, error = int(self.pairing.rows.target_call[row]), float(self.pairing.rows.error[row])
        noise = max(float(self.pairing.rows.roundoff[row]), self._signs.noise(call))
        agreed = max(AGREES, 16 * noise, 20 * AGREES * min(error, 1.0))
        return not self.measures.exceeds[call] and float(self.measures.out_error[call]) <= agreed

    def _only_reordered(self, call: int) -> bool:
        """Whether a sum is only taken in another order, so that its parts differ and the whole does
        not.
        """
        reordered = self._sums.reordered(call)
        self._reordered.update(reordered)
        return bool(reordered)

    @cached_property
    def _sums(self) -> Sums:
        return Sums(self.pairing, self._signs.producers[0], self._signs.rows_of)

    def _other_type(self, row: int) -> str:
        """That a row has another element type than golden's, in words; "" when it has not."""
        rows = self.pairing.rows
        mine, theirs = (
            side.words.get(int(side.tensors.dtype[tensor]), "")
            for side, tensor in (
                (self.pairing.target, rows.target[row]),
                (self.pairing.golden, rows.golden[row]),
            )
        )
        return f"reads {mine} where golden reads {theirs}" if mine != theirs else ""

    def _wiring(self, call: int) -> str:
        """Whether the inputs are the golden ones in another order."""
        rows, flows = self.pairing.rows, self.pairing.flows
        inside = [
            row
            for row in self._signs.rows_of(call)
            if not rows.output[row] and rows.target[row] >= 0 and rows.golden[row] >= 0
        ]
        mine = [int(flows[0].state[rows.target[row]]) for row in inside]
        theirs = [int(flows[1].state[rows.golden[row]]) for row in inside]
        return (
            "its operands are swapped"
            if sorted(mine) == sorted(theirs) and mine != theirs
            else "reads the output of another call"
        )

    def _alone_above(self, start: int, *, target: bool) -> tuple[set[int], float]:
        """Calls without a partner through which a tensor came, and the error of what they were
        given; inf where that has an origin.
        """
        alone, given = self._lonely.above(start, target=target)
        return alone, max((self._handed_over(call) for call in given), default=0.0)

    def _handed_over(self, producer: int) -> float:
        """Error of what a matched call hands over, inf when it is a consequence of an origin
        already.
        """
        if not self.measures.differs[producer]:
            return 0.0
        return (
            float("inf") if self._is_tainted(producer) else float(self.measures.out_error[producer])
        )

    # -- taint -------------------------------------------------------------------------------------

    def _is_tainted(self, call: int) -> bool:
        """Whether a difference of this call comes from an origin that is known already."""
        waiting = [call]
        while waiting:
            at = waiting[-1]
            if at in self._tainted:
                waiting.pop()
                continue
            above = () if at in self._culprits else self._above(at)
            unknown = [
                source for source in above if NONE < source < at and source not in self._tainted
            ]
            tainted = at in self._culprits or any(
                source == NONE or self._tainted.get(source, False) for source in above
            )
            if unknown and not tainted:
                waiting.extend(unknown)
            else:
                self._tainted[waiting.pop()] = tainted
                if not tainted:
                    heapq.heappush(self._free, -at)
        return self._tainted[call]

    def _above(self, call: int) -> Sequence[int]:
        """Target calls from which the differing inputs of a call come; NONE for an origin of
        another kind.
        """
        rows = self.pairing.rows
        above: list[int] = []
        for row in self._signs.rows_of(call):
            mine, theirs = int(self._signs.producers[0][row]), int(self._signs.producers[1][row])
            unread = rows.status[row] == UNKNOWN and mine >= 0
            if rows.output[row] or not (self._signs.unequal[row] or unread):
                continue
            if mine < 0 and theirs < 0:
                if self._identity(row) in self._arrived or (
                    self.causes and self._signs.earlier_difference(call)
                ):
                    above.append(NONE)
                continue
            if mine in self._culprits or theirs in self._culprits_golden:
                above.append(NONE)
            elif mine >= 0:
                above.append(mine)
            elif self.causes and self._signs.earlier_difference(call):
                above.append(NONE)
        if self._forward[call] >= 0:
            above.append(int(self._forward[call]))
        if self.pairing.match.target[call] < 0:
            above.extend(
                producer for producer in self._lonely.inputs_of(call, target=True) if producer >= 0
            )
        return above

    def _accept(self, cause: Cause) -> None:
        """Note a cause; what was found free of taint behind it is looked at again."""
        self.causes.append(cause)
        if cause.golden >= 0 and cause.kind in {MISSING, EXTRA}:
            self._culprits_golden.add(cause.golden)
        self._culprits.add(cause.target)
        while self._free and -self._free[0] >= cause.target:
            self._tainted.pop(-heapq.heappop(self._free), None)
