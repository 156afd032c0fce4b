# SPDX-License-Identifier: Apache-2.0
"""What two programs come to, as far as one can be held against the other."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from opscope.compare.cause.handed_out import handed_out
from opscope.compare.cause.inferences import Inferences
from opscope.compare.cause.multiplied_losses import without_multiples
from opscope.compare.cause.read_out import read_out_alike
from opscope.compare.cause.reported_losses import without_reported
from opscope.compare.cause.results import (
    comparable,
    endings,
    infer,
    last_results,
    losses_beside,
    losses_of,
    results_apart,
)
from opscope.compare.cause.what_matters import FORWARD, PARAMETER
from opscope.compare.cause.written_otherwise import cut_otherwise
from opscope.compare.pair.meetings import Meetings, meet, multiplied
from opscope.compare.pair.unpaired import half_compiled
from opscope.compare.side.call_rows import places_of
from opscope.compare.side.contents import bears_identities, in_dumps
from opscope.compare.side.lowering import worlds_apart

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from opscope.arrays import Bools, Ints
    from opscope.compare.cause.trained_states import Apart
    from opscope.compare.cause.what_matters import Place
    from opscope.compare.pair.pairing import Pairing

    Flags = tuple[Bools, Bools]  # of the rows of either side


class SharedResults:
    """Results of two programs: rows are those that may meet, dim those of which statistics tell
    nothing.
    """

    def __init__(
        self, pairing: Pairing, meetings: Meetings, rows: tuple[Ints, Ints], dim: Flags
    ) -> None:
        self._pairing, self._meetings, self._rows, self._dim = pairing, meetings, rows, dim
        self._sides = pairing.target, pairing.golden

    def apart(
        self, meetings: Meetings, unmet: Flags, sound: Mapping[Place, float]
    ) -> Iterator[Apart]:
        """Results that meet nothing on the other side, but where a batch is cut otherwise, and for
        multiples, and what one side only reports, where all that is trained agrees (sound).
        """
        if in_dumps(*self._sides):
            # dumps do not show what only turns the sign of a loss
            unmet = unmet[0] & ~self.turned(0, 1.0), unmet[1] & ~self.turned(1, 1.0)
        handed = [*self._handed_apart(meetings, unmet)]
        if not worlds_apart(*self._sides):  # whose gradients are known of few
            handed = without_multiples(self._pairing, meetings, unmet, handed, sound)
            handed = without_reported(self._pairing, meetings, handed, sound)
        yield from handed
        if not handed and self._inferences is not None:
            yield from self._inferences.apart(unmet, layers=not self._comparable)

    def _handed_apart(self, meetings: Meetings, unmet: Flags) -> Iterator[Apart]:
        if self._comparable:
            apart = results_apart(
                self._pairing, meetings, unmet, self._dim, alike=lambda: self._alike
            )
            yield from (entry for entry in apart if entry[0] not in self.cut)

    def compared(self, unmet: Flags) -> bool:
        """Whether both sides show results in a step in which batches are cut alike; those of a
        graph are judged by themselves.
        """
        if self._end_alike(unmet) or (half_compiled(self._pairing) and not self.cut):
            return True
        if self._inferences is not None and (self._inferences.numbers or self._all_met(unmet)):
            return True
        return self._comparable and bool(self.shown - self.cut)

    def borne_out(self, apart: list[Apart], unmet: Flags) -> list[Apart]:
        """What is apart, each loss with the other side's that was computed in its place; nothing
        where it is gradients alone and dumps show more than one loss: a gradient that one call made
        may be a part of a parameter's, or be clipped unseen; what is wrong with it shows in the
        next loss.
        """
        stages = {stage for _, stage, _ in apart}
        if not stages & {FORWARD, PARAMETER} and in_dumps(*self._sides) and self._several:
            return []
        if FORWARD not in stages:
            return apart
        beside = losses_beside(self._pairing, self._meetings, unmet)
        return [
            (place, stage, _with_losses(rows, beside) if stage == FORWARD else rows)
            for place, stage, rows in apart
        ]

    @cached_property
    def _several(self) -> bool:
        """Whether both sides show several results."""
        columns = zip(self._sides, self._pairing.flows, strict=True)
        sources = [(side, flow.source_row) for side, flow in columns]
        losses = [len(losses_of(*each)) for each in sources]
        shown = losses if any(losses) else [len(last_results(*each)) for each in sources]
        return min(shown) > 1

    @cached_property
    def shown(self) -> set[Place]:
        """The places at which both show results."""
        mine, theirs = (
            set(places_of(side, endings(side, flow.source_row)))
            for side, flow in zip(self._sides, self._pairing.flows, strict=True)
        )
        return mine & theirs

    @cached_property
    def cut(self) -> set[Place]:
        """Ranks and steps in which the two go back from other numbers of losses."""
        return cut_otherwise(self._pairing)

    def turned(self, number: int, share: float) -> Bools:
        """The numbers of a side that agree with the negative of something, by so much of their
        limits.
        """
        agree = ~self._mirrored.unmet(number, share)
        turned: Bools = agree & (self._sides[number].tensors.size == 1)
        return turned

    @cached_property
    def _mirrored(self) -> Meetings:
        """What agrees with the negative of something: a loss less a likelihood."""
        negative = multiplied(self._pairing.golden, -1.0)
        return meet(msgspec.structs.replace(self._pairing, golden=negative), self._rows)

    @cached_property
    def _alike(self) -> bool | None:
        """Whether both read out the same numbers; None where not as many."""
        return read_out_alike(self._pairing, self._meetings)

    @cached_property
    def _inferences(self) -> Inferences | None:
        """What is compared beside results, or in place of them, where neither side trains."""
        infers = infer(self._pairing)
        return Inferences(self._pairing, self._meetings, self._dim) if infers else None

    @cached_property
    def _handed_out(self) -> tuple[Ints, Ints]:
        """The rows that hold what the model of either side hands out."""
        sources = [flow.source_row for flow in self._pairing.flows]
        mine, theirs = (
            handed_out(side, source, losses_of(side, source))
            for side, source in zip(self._sides, sources, strict=True)
        )
        return mine, theirs

    @cached_property
    def _comparable(self) -> bool:
        """Whether results of either side can be held against the other's: not where one of two that
        train nothing has no model that hands them out; where the passes of one were left out,
        nobody knows what of it is a part of a batch.
        """
        if not all(side.run.info.coverage.passes for side in self._sides):
            return False
        hand_out = [len(rows) > 0 for rows in self._handed_out]
        read = self._inferences is not None and self._inferences.numbers != []
        if self._inferences is not None and (any(hand_out) or read) and not all(hand_out):
            return False
        return comparable(self._pairing, alike=lambda: self._alike)

    def may_be_metrics(self, starts: tuple[int, int], apart: list[Apart]) -> bool:
        """Whether what is apart may be no more than metrics that each program has of its own."""
        inferences = self._inferences
        return inferences is not None and inferences.may_be_metrics(starts, apart)

    @property
    def metric(self) -> tuple[int, int] | None:
        """The rows of the first number that both read out, where neither trains, and is another."""
        numbers = (self._inferences.numbers if self._inferences else None) or []
        others = [(number.mine[-1], number.theirs[-1]) for number in numbers if not number.same]
        return others[0] if others else None

    @property
    def beyond(self) -> bool:
        """Whether neither trains, and the numbers that both read out tell nothing of each other."""
        return self._inferences is not None and self._inferences.numbers is None

    def _all_met(self, unmet: Flags) -> bool:
        """Whether all that the model of either side hands out agrees with something of the other:
        what a program makes of that may be in no tensor.
        """
        columns = zip(self._handed_out, unmet, self._dim, strict=True)
        return any(len(rows) > 0 and not (apart | dim)[rows].any() for rows, apart, dim in columns)

    def _end_alike(self, unmet: Flags) -> bool:
        """Whether two runs of no training end in the same, of which one is of another framework, or
        a dump: such a run does not show what a model hands out.
        """
        backward = [side.in_phase("backward").any() for side in self._sides]
        own = all(map(bears_identities, self._sides)) and not worlds_apart(*self._sides)
        if own or any(backward):
            return False
        last = [
            last_results(side, flow.source_row)
            for side, flow in zip(self._sides, self._pairing.flows, strict=True)
        ]
        return all(
            len(rows) and not (apart | dim)[rows].any()
            for rows, apart, dim in zip(last, unmet, self._dim, strict=True)
        )


def _with_losses(
    rows: tuple[list[int], list[int]], beside: tuple[dict[int, list[int]], dict[int, list[int]]]
) -> tuple[list[int], list[int]]:
    """Rows of both sides; of a loss that one side has alone, with the other's in its place."""
    mine, theirs = rows
    return (
        mine or [row for loss in theirs for row in beside[1].get(loss, [])],
        theirs or [row for loss in mine for row in beside[0].get(loss, [])],
    )
