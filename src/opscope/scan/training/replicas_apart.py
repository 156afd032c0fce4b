# SPDX-License-Identifier: Apache-2.0
"""Ranks that begin with the same parameters and then train them each by itself: a wrapper that
exchanges gradients is called around, or holds parameters that are no longer the model's.

That ranks are to train together is taken from their beginning alike and from a collective between
them; one that averages parameters now and then makes them equal again, and is let alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from opscope.questions.findings import listed
from opscope.run.query import chosen_columns, rows_of, which
from opscope.run.vectors import calls_where
from opscope.scan.training.story import Event, Note, Story

if TYPE_CHECKING:
    from opscope.run.protocol import Run

STEPS = 3  # steps in which all parameters differ, before anything is said


class Trained(msgspec.Struct, frozen=True):
    """Parameters of one rank that its optimizer writes: the bits in which each step reads them, and
    those of their gradients, by name and step; first is the first write.
    """

    process: int
    rank: int
    first: Event
    read: Mapping[tuple[str, int], frozenset[int]]
    gradients: Mapping[tuple[str, int], frozenset[int]]

    @property
    def names(self) -> frozenset[str]:
        """Names of the parameters."""
        return frozenset(name for name, _ in self.read)


def replicas_apart(story: Story) -> Iterator[Note]:
    """At most one warning, at the first write of the lowest rank after which ranks are apart."""
    ranks = sorted(
        filter(None, (_trained(events) for _, events in story.of_processes())),
        key=lambda rank: rank.rank,
    )
    if len({rank.rank for rank in ranks}) < 2 or len({rank.rank for rank in ranks}) < len(ranks):
        return
    common = frozenset.intersection(*(rank.names for rank in ranks))
    step, names = _parting(ranks, common), sorted(common)
    if step is None or not _meet(story) or _alike_again(story.run, names[0], step):
        return
    yield Note(
        kind="replicas-apart",
        process=ranks[0].process,
        index=ranks[0].first.index,
        words=(
            f"ranks {', '.join(str(rank.rank) for rank in ranks)} have the same {listed(names)} up "
            f"to step {step}, and train them each by itself from then on: no gradient is the same "
            "on all of them"
        ),
        parameters=tuple(names),
    )


def _trained(events: Sequence[Event]) -> Trained | None:
    """What one rank trains; None for one that trains nothing."""
    writes = [
        event
        for event in events
        if event.role == "parameter" and event.phase == "optimizer" and event.io == "output"
    ]
    written = {event.name for event in writes}
    read: dict[tuple[str, int], set[int]] = {}
    gradients: dict[tuple[str, int], set[int]] = {}
    for event in events:
        if event.digest is None or event.name not in written:
            continue
        if event.role == "gradient":
            gradients.setdefault((event.name, event.step), set()).add(event.digest)
        elif event.io == "input":
            read.setdefault((event.name, event.step), set()).add(event.digest)
    if not writes or not read:
        return None
    return Trained(writes[0].process, writes[0].rank, writes[0], _frozen(read), _frozen(gradients))


def _frozen(
    digests_at: Mapping[tuple[str, int], set[int]],
) -> dict[tuple[str, int], frozenset[int]]:
    return {name_and_step: frozenset(digests) for name_and_step, digests in digests_at.items()}


def _shared(
    held: Sequence[Mapping[tuple[str, int], frozenset[int]]], name_and_step: tuple[str, int]
) -> bool:
    """Whether all ranks hold the same bits at one time of a step."""
    return bool(frozenset.intersection(*(reads.get(name_and_step, frozenset()) for reads in held)))


def _parting(ranks: Sequence[Trained], names: frozenset[str]) -> int | None:
    """The last step in which all ranks read them alike, where none of these parameters is ever
    alike again and none of their gradients is.
    """
    steps = sorted({step for rank in ranks for name, step in rank.read if name in names})
    alike = [
        sum(_shared([rank.read for rank in ranks], (name, step)) for name in names)
        for step in steps
    ]
    together = next(
        (number for number, count in enumerate(alike) if count < len(names)), len(steps)
    )
    if not names or not together or len(steps) - together < STEPS or any(alike[together:]):
        return None
    exchanged = any(
        _shared([rank.gradients for rank in ranks], (name, step))
        for step in steps[together:]
        for name in names
    )
    return None if exchanged else steps[together - 1]


def _meet(story: Story) -> bool:
    """Whether the ranks exchange anything at all in the steps looked at."""
    ops = chosen_columns(story.run, "calls", ("op",), story.calls)
    return any(which(op, lambda name: name.startswith("c10d::")).any() for (op,) in ops)


def _alike_again(run: Run, parameter: str, step: int) -> bool:
    """Whether any later step, of all that were recorded, reads a parameter in the same bits on
    several ranks: they are averaged now and then.
    """

    calls = calls_where(run, "tensors", lambda batch: batch.are("tensor_name", parameter))
    names: tuple[str, ...] = ("process", "index", "step")
    steps = {(process, index): at for process, index, at in rows_of(run, "calls", names, calls)}
    names = ("process", "index", "io", "role", "tensor_name", "digest")
    readers: dict[tuple[int, int], set[int]] = {}
    for process, index, *state, digest in rows_of(run, "tensors", names, calls):
        at = steps.get((process, index), step)
        if state == ["input", "parameter", parameter] and digest is not None and at > step:
            readers.setdefault((at, digest), set()).add(process)
    return any(len(processes) > 1 for processes in readers.values())
