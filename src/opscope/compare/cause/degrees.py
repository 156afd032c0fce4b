# SPDX-License-Identifier: Apache-2.0
"""Runs of other degrees: other numbers of ranks, of shards or of micro-batches, judged by their
logical tensors (compare.pair.wholes).

Step by step: what parameters begin with, what forward passes compute, the gradients that optimizers
get, what parameters are afterwards. Calls that one side alone runs (collectives, chunks, copies)
are wiring: what they hand on is judged, never they. A sum that is not yet reduced meets golden's
where it is. Where all of that agrees, the two agree.
"""

from __future__ import annotations

from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from opscope.compare.cause.causes import ARRIVED, MISSING, OTHERWISE, Cause
from opscope.compare.cause.drawn_alike import drawn_alike
from opscope.compare.cause.forward_sites import Both, Forward
from opscope.compare.cause.odd_ranks import OddRanks, listed
from opscope.compare.cause.trained_states import BACKWARD, MOVED, ROUNDED
from opscope.compare.cause.walks import MAX_REGION
from opscope.compare.cause.what_matters import FINER
from opscope.compare.pair.wholes import Site, Wholes, distance, shards
from opscope.compare.side.tokens import bare_module
from opscope.operators.catalogue import family, traits_of
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.pair.sketches import Sketch

LATER = 64.0  # of the limit, in later steps: roundings that a training has made larger
LEAP = 16.0  # what is that much further apart than in the steps before did not grow
COMMON = 0.5  # parameters of one name, of the fewer, from which on two runs are of one model
BATCH_NORM = "native_batch_norm"
FLAT = (
    "ranks hold parameters in parts of one flat tensor (FullyShardedDataParallel): gradients and "
    "updates of these were not compared"
)
BY_NATURE = ", as runs of other degrees do: what comes of it was not compared"
LEAST_MOVED = 3  # parameters of which an optimizer is judged
ALIKE = 0.02  # relative spread of factors that are one


# A parameter, or its gradient: name, rows and what they hold together, of either side.
Pair = tuple[str, list[int], list[int], "Sketch", "Sketch"]


class Judged(NamedTuple):
    """What a comparison of other degrees comes to: whether it applies, and what it found; of what
    was drawn otherwise nothing can be said.
    """

    pairing: Pairing
    causes: list[Cause]


def across_degrees(pairing: Pairing, causes: list[Cause]) -> Judged:
    """The causes of a pairing of runs of other degrees; what was found call by call elsewhere."""
    versions = all(side.run.info.coverage.versions for side in (pairing.target, pairing.golden))
    if not versions or pairing.between is not None:
        return Judged(pairing, causes)
    degrees = Degrees(pairing)
    if not degrees.differ or not degrees.one_model:
        return Judged(pairing, causes)
    origins = list(degrees.causes())
    if not degrees.compared and not origins:
        degrees.until = "neither forward passes nor gradients of the two could be compared"
    elif degrees.flat and not origins:
        degrees.until = degrees.until or FLAT
    pairing = msgspec.structs.replace(pairing, by_regions=True, by_wholes=True, until=degrees.until)
    return Judged(pairing, origins)


class Degrees:
    """The logical tensors of both sides, and where they part."""

    def __init__(self, pairing: Pairing) -> None:
        self.pairing = pairing
        self.both = Both(pairing)
        self.mine, self.theirs, self.limit = self.both.mine, self.both.theirs, self.both.limit
        self.until: str | None = None  # what is no fault, and behind which nothing is known
        self.flat = False  # whether ranks hold parameters in parts that are none of golden's
        self.compared = False  # whether any forward pass or gradient of both was
        self.odd = OddRanks(self.mine, self.limit)
        self._worst: dict[str, float] = {}
        self._nothing: set[str] = set()  # parameters of which the gradient is rounding alone

    # -- whether it applies ------------------------------------------------------------------------

    @property
    def differ(self) -> bool:
        """Whether two whole runs have other numbers of ranks, other shards or micro-batches."""
        if not self.mine.complete or not self.theirs.complete:
            return False  # what ranks hold together is not known
        return (
            len(self.mine.ranks) != len(self.theirs.ranks)
            or self._sharded_otherwise
            or self._batched_otherwise
        )

    @property
    def _sharded_otherwise(self) -> bool:
        """Whether ranks hold other parts of parameters that are the same as wholes."""
        sides = self.pairing.target, self.pairing.golden
        if len(self.mine.ranks) < 2 or np.array_equal(shards(sides[0]), shards(sides[1])):
            return False
        return any(
            self.mine.of(mine[:1]).size != self.theirs.of(theirs[:1]).size
            and self.both.error(self.mine.of(mine), self.theirs.of(theirs)) <= self.limit
            for _, mine, theirs in self._begun
        )

    @property
    def _batched_otherwise(self) -> bool:
        """Whether one batch is given in other numbers of parts."""
        step = min({*self.mine.trained} & {*self.theirs.trained}, default=None)
        if step is None or self.mine.most_batches(step) == self.theirs.most_batches(step):
            return False
        given = [
            side.of(rows) for side in (self.mine, self.theirs) if (rows := self._given(side, step))
        ]
        same = len(given) == 2 and given[0].size == given[1].size
        return same and distance(*given) <= self.limit

    @staticmethod
    def _given(side: Wholes, step: int) -> list[int]:
        """What the model is given first in the calls of a step."""
        tensors = side.side.tensors
        rows = [
            side.inputs(call)[:1]
            for call in side.models.tolist()
            if int(side.side.calls.step[call]) == step
        ]
        return [row for some in rows for row in some if np.isfinite(tensors.l2norm[row])]

    @cached_property
    def _begun(self) -> list[tuple[str, list[int], list[int]]]:
        """Parameters of both sides, in golden's order."""
        return [
            (name, self.mine.begun[name], rows)
            for name, rows in self.theirs.begun.items()
            if name in self.mine.begun
        ]

    @property
    def one_model(self) -> bool:
        """Whether the two share most of their parameters' names."""
        fewer = min(len(self.mine.begun), len(self.theirs.begun))
        return bool(self._begun) and len(self._begun) >= COMMON * fewer

    # -- where they part ---------------------------------------------------------------------------

    def causes(self) -> Iterator[Cause]:
        """The first causes; none where all that matters agrees."""
        loaded = list(self._loaded())
        if loaded:
            yield from loaded
            return
        for step in self._steps:
            cause = self._left_out(step)
            irregular = self.mine.is_irregular(step) or self.theirs.is_irregular(step)
            if cause is None and not irregular:  # else gradients say whether it parts
                cause = self._computed(step)
            if cause is None and self.until is None:
                cause = self._learnt(step)
                if cause is None:
                    cause = self._moved(step)
                elif not irregular:
                    cause = self._computed_within(step) or cause
            if cause is not None:
                yield cause
            if cause is not None or self.until is not None:
                return

    @property
    def _steps(self) -> list[int]:
        """Steps in which both call their models."""
        both = [
            {int(step) for step in side.side.calls.step[side.models]}
            for side in (self.mine, self.theirs)
        ]
        return sorted(both[0] & both[1])

    def _leaps(self, kind: str, error: float, limit: float) -> bool:
        """Whether something is apart by more than roundings, and than in the steps before."""
        before = self._worst.get(kind)
        allowed = limit if before is None else max(LATER * limit, LEAP * before)
        self._worst[kind] = max(before or 0.0, error if np.isfinite(error) else 0.0)
        return error > allowed

    def _loaded(self) -> Iterator[Cause]:
        """Parameters that are not golden's when the models are first called."""
        for name, first, theirs in self._begun:
            mine, whole = first, self.theirs.of(theirs)
            if not np.isfinite(self.both.error(self.mine.of(mine), whole)):
                mine = self.mine.stepped.get(name, first)  # shards are filled up to be sent
            error = self.both.error(self.mine.of(mine), whole)
            if error <= self.limit or not np.isfinite(error):
                continue
            row = self.odd.row(mine, whole)
            pairs = np.flatnonzero(self.pairing.rows.target == row)
            words = self.odd.twice(mine, whole) or self._anothers(name, mine)
            yield Cause(
                ARRIVED,
                int(self.pairing.target.tensors.call[row]),
                int(self.pairing.golden.tensors.call[theirs[0]]),
                int(pairs[0]),
                words=words,
            )

    def _anothers(self, name: str, rows: list[int]) -> tuple[str, ...]:
        """That a parameter is what golden holds under another name."""
        held = self.mine.of(rows)
        if held.filled:
            return ()
        others = ((other, self.theirs.of(theirs)) for other, _, theirs in self._begun)
        known = (
            other
            for other, content in others
            if other != name and self.both.error(held, content) <= self.limit
        )
        return tuple(f"it is what golden holds as {other}" for other in islice(known, 1))

    # -- steps -------------------------------------------------------------------------------------

    def _left_out(self, step: int) -> Cause | None:
        """A rank that goes on to its next batch where the others update their parameters."""
        given = {rank: self.mine.batches.get((rank, step), 0) for rank in self.mine.ranks}
        usual = min(given.values())
        ahead = {rank for rank, batches in given.items() if batches > usual}
        most = max(self.mine.updates.values(), default=0)
        ahead = {rank for rank in ahead if self.mine.updates.get(rank, 0) < most}
        if not ahead or not usual or len(ahead) > len(given) - len(ahead):
            return None
        rank = min(ahead)
        calls = self.mine.side.calls
        own = [
            call
            for call in self.mine.models.tolist()
            if calls.rank[call] == rank and calls.step[call] == step
        ]
        update = np.flatnonzero(self.theirs.optimizer & (self.theirs.side.calls.step == step))
        words = f"rank {rank} goes on to its next batch where the other ranks update parameters"
        golden = int(update[0]) if len(update) else NONE
        return Cause(OTHERWISE, own[usual], golden, sure=False, words=(words,))

    # -- forward passes ----------------------------------------------------------------------------

    def _computed(self, step: int) -> Cause | None:
        """Where a forward pass begins to part, if its results do."""
        forward = Forward(self.both, step)
        ends = forward.ends()
        self.compared |= bool(ends)
        apart = max(map(forward.error, ends), default=0.0)
        before = self._worst.get("forward", 0.0)
        if not self._leaps("forward", apart, self.limit):
            return None
        site = forward.start(max(FINER * self.limit, LEAP / 4 * before))
        return None if site is None else self._begins(forward, site)

    def _computed_within(self, step: int) -> Cause | None:
        """Where it does if its gradients part: small beside what it is added to."""
        forward = Forward(self.both, step)
        limit = max(FINER * self.limit, LEAP / 4 * self._worst.get("forward", 0.0))
        site = forward.start(FINER * self.limit)
        if site is None or forward.error(site) <= max(self.limit, limit):
            return None
        return self._begins(forward, site)

    def _begins(self, forward: Forward, site: Site) -> Cause | None:
        """The cause of a site that parts: its call on the rank that is odd, if any is, or one that
        only some ranks run on the way to it.
        """
        mine, theirs = forward.mine.get(site, []), forward.theirs[site]
        if not mine:
            return Cause(MISSING, self._near(site, forward.step), theirs[0], sure=False)
        inside = self._inside(site, forward.step)
        lacking = {*inside} - {self.mine.rank_of(call) for call in mine}
        rows, whole = self.mine.results(mine), self.theirs.of(self.theirs.results(theirs))
        if traits_of(f"aten::{site.op}").random and (alike := drawn_alike(self.mine, mine)):
            return Cause(OTHERWISE, alike.call, theirs[0], sure=False, words=alike.words)
        self.until = None if lacking else self._by_nature(site, rows, whole)
        if self.until is not None:
            return None
        call = mine[0]
        if lacking:
            call = min(inside[rank] for rank in lacking)
        elif rows and whole.size:
            call = int(self.pairing.target.tensors.call[self.odd.row(rows, whole)])
        region = forward.before(mine)
        alone = [(member, ranks) for member in region if (ranks := forward.some_ranks(member))]
        words = [f"rank {listed(lacking)} does not run it"] if lacking else []
        if alone and not lacking:
            call, ranks = alone[0]
            words = [f"only rank {listed(ranks)} runs it"]
        elif not lacking and (wired := forward.wired_otherwise(mine, theirs)):
            call, words = wired.call, [wired.words]
        words += self.odd.words(rows, whole)
        if not alone and self._given_otherwise(forward, site):
            words.append("what ranks are given is together not what golden is given")
        own = self.mine.rank_of(call)
        calls = (*(member for member in region if self.mine.rank_of(member) == own), call)
        return Cause(
            OTHERWISE,
            call,
            theirs[0],
            sure=False,
            words=tuple(words),
            region=(tuple(sorted(set(calls))), forward.around(theirs[0])),
        )

    def _by_nature(self, site: Site, rows: list[int], whole: Sketch) -> str | None:
        """Why a site's results are others wherever degrees are; None where they are not."""
        where = site.module or "the program"
        if traits_of(f"aten::{site.op}").random:
            return f"the two draw other random numbers in {where}{BY_NATURE}"
        parts = any(self.mine.of([row]).size != whole.size for row in rows)
        if family(site.op) == BATCH_NORM and parts:
            return f"{where} takes its means over the part of a batch that it is given{BY_NATURE}"
        return None

    def _near(self, site: Site, step: int) -> int:
        """A call of the target in the module of a site that it does not run."""
        return min(self._inside(site, step).values(), default=int(self.mine.models[0]))

    def _inside(self, site: Site, step: int) -> dict[int, int]:
        """The first call of each rank in the module of a site; none where it is in no module."""
        if not site.module:
            return {}
        calls = self.pairing.target.calls
        inside = np.flatnonzero(
            self.pairing.target.which(
                calls.module, lambda module: bare_module(module) == site.module
            )
            & (calls.step == step)
        )
        ranks, first = np.unique(calls.rank[inside], return_index=True)
        return dict(zip(ranks.tolist(), inside[first].tolist(), strict=True))

    def _given_otherwise(self, forward: Forward, site: Site) -> bool:
        """Whether what a site reads besides parameters, and no module made, is not golden's."""
        read = [
            [
                row
                for call in calls
                for row in side.inputs(call)
                if not side.side.tensors.parameter[row]
            ]
            for side, calls in (
                (self.mine, forward.mine[site]),
                (self.theirs, forward.theirs[site]),
            )
        ]
        made = self.pairing.flows[1].producer[read[1]]
        calls = self.pairing.golden.calls
        if not read[0] or not len(made) or (calls.parent[made[made >= 0]] >= 0).any():
            return False
        return distance(self.mine.of(read[0]), self.theirs.of(read[1])) > self.limit

    # -- gradients and updates ---------------------------------------------------------------------

    def _held(self, kind: str, step: int) -> list[Pair]:
        """Parameters, or gradients, of a step: name, rows and what they hold, of either side. Parts
        of a flat parameter, whose sizes are nobody's, are left out.
        """
        mine, theirs = getattr(self.mine, kind), getattr(self.theirs, kind)
        held = [
            (name, rows, other, self.mine.of(rows), self.theirs.of(other))
            for name, _, _ in self._begun
            if (rows := mine.get((step, name))) and (other := theirs.get((step, name)))
        ]
        fitting = [pair for pair in held if self.both.fit(pair[3], pair[4])]
        self.flat = self.flat or len(fitting) < len(held)
        return fitting

    def _learnt(self, step: int) -> Cause | None:
        """The first gradient, in the order in which golden's backward pass makes them, that is not
        golden's.
        """
        held = self._held("gradients", step)
        self.compared |= bool(held)
        reach = max((whole.reach for *_, whole in held), default=0.0)
        errors, floor = {}, ROUNDED * reach
        self._nothing = {
            name for name, *_, mine, whole in held if max(mine.reach, whole.reach) <= floor
        }
        for name, _, _, mine, whole in held:
            error, rms = self.both.error(mine, whole), (whole.squares / whole.size) ** 0.5
            errors[name] = 0.0 if name in self._nothing or error * rms <= floor else error
        if not self._leaps("gradient", max(errors.values(), default=0.0), BACKWARD * self.limit):
            return None
        limit = BACKWARD * self.limit
        ordered = sorted(held, key=lambda pair: self._made(self.theirs, pair[0], pair[2][0]))
        first = next(at for at, pair in enumerate(ordered) if errors[pair[0]] > limit)
        name, rows, other, _, whole = ordered[first]
        row = self.odd.row(rows, whole)
        call = self._made(self.mine, name, row)
        before = self._before(ordered[:first], self.mine.rank(row))
        words = [f"the gradient of {name} is not golden's", *self._factors(ordered, errors)]
        if first:
            words.append(f"{first} gradients made before it agree")
        region = tuple(range(max(before + 1, call - MAX_REGION), call + 1))
        region = tuple(member for member in region if self.pairing.target.calls.leaf[member])
        golden = self._made(self.theirs, name, other[0])
        return Cause(
            OTHERWISE,
            call,
            golden,
            sure=False,
            words=(*words, *self.odd.words(rows, whole)),
            region=(region, (golden,)),
        )

    def _factors(self, ordered: list[Pair], errors: dict[str, float]) -> list[str]:
        """That all gradients are golden's times one number."""
        apart = [pair for pair in ordered if errors[pair[0]] > BACKWARD * self.limit]
        factors = [
            (mine.squares / mine.size / (whole.squares / whole.size)) ** 0.5
            for *_, mine, whole in apart
            if whole.squares and mine.size
        ]
        if not factors or max(factors) - min(factors) > ALIKE * min(factors):
            return []
        near = float(np.median(factors))
        if abs(near - 1) <= ALIKE:
            return []
        if 1 < len(apart) == len(ordered) - len(self._nothing):
            return [
                f"all gradients are {near:.4g} times golden's: as a loss that is scaled otherwise"
            ]
        return [f"it is {near:.4g} times golden's"] if len(apart) == 1 else []

    def _before(self, agreeing: list[Pair], rank: int) -> int:
        """The last call of a rank that made a gradient of those that agree."""
        made = [
            self._made(self.mine, name, row)
            for name, rows, *_ in agreeing
            for row in rows
            if self.mine.rank(row) == rank
        ]
        return max(made, default=NONE)

    def _made(self, side: Wholes, name: str, row: int) -> int:
        """The call of the backward pass that made a gradient, as far as that is known: the last
        that wrote one of its name, else who wrote what the optimizer reads.
        """
        calls, tensors = side.side.calls, side.side.tensors
        reader = int(tensors.call[row])
        writer = side.written.get((int(calls.rank[reader]), int(calls.step[reader]), name))
        if writer is not None:
            return writer
        producer = int(side.flow.producer[row])
        return producer if producer >= 0 else reader

    def _moved(self, step: int) -> Cause | None:
        """An optimizer that makes something else of gradients that agree."""
        held = [pair for pair in self._held("updated", step) if pair[0] not in self._nothing]
        if not held:
            return None
        errors = [self.both.error(mine, whole) for *_, mine, whole in held]
        most = float(np.quantile(errors, 1 - MOVED, method="lower"))
        leapt = self._leaps("parameter", most, self.limit)
        factor = self._factor_moved(step, held)
        if not leapt and factor is None:
            return None
        name, rows, other, _, whole = held[int(np.argmax(errors))]
        row = self.odd.row(rows, whole)
        words = f"{name} is not golden's after this step, though its gradient is"
        if factor is not None:
            words = f"parameters move {factor:.3g} times as far as golden's"
        return Cause(
            OTHERWISE,
            int(self.pairing.target.tensors.call[row]),
            int(self.pairing.golden.tensors.call[other[0]]),
            sure=False,
            words=(words, *self.odd.words(rows, whole)),
        )

    def _factor_moved(self, step: int, held: list[Pair]) -> float | None:
        """How many times as far as golden's the means of parameters move, if most agree in that."""
        factors = []
        for name, _, _, mine, theirs in held:
            rows = [
                side.of_ranks(side.before.get((step, name), []), side.updated[step, name])
                for side in (self.mine, self.theirs)
            ]
            if not rows[0] or not rows[1]:
                continue
            start = self.mine.of(rows[0]), self.theirs.of(rows[1])
            moved = [
                after.total / after.size - before.total / before.size
                for after, before in zip((mine, theirs), start, strict=True)
            ]
            rms = (theirs.squares / theirs.size) ** 0.5
            if abs(moved[1]) > self.limit * rms:
                factors.append(moved[0] / moved[1])
        if len(factors) < LEAST_MOVED:
            return None
        low, near, high = np.quantile(factors, (MOVED, 0.5, 1 - MOVED)).tolist()
        alike = high - low <= ALIKE * abs(near)
        return near if alike and abs(near - 1) > ALIKE else None
