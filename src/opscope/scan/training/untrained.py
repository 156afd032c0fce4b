# SPDX-License-Identifier: Apache-2.0
"""Parameters that are not trained though they seem to be: without a gradient, without an optimizer,
frozen but moved, or parted from what they were one with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opscope.questions.findings import listed
from opscope.scan.training.facts import Facts
from opscope.scan.training.story import Event, Note, Story

STEPS = 2  # with a gradient, or without one, before anything is said


class Fates:
    """What happened to the parameters of a process, by name."""

    def __init__(self, events: Sequence[Event], facts: Facts) -> None:
        self.graded: dict[str, set[int]] = {}
        self.read: dict[str, dict[int, Event]] = {}
        self.written: set[str] = set()  # by optimizers
        self.changed: set[str] = set()
        self.thawed: dict[str, Event] = {}
        first: dict[str, int | None] = {}
        before: dict[tuple[int, str], int | None] = {}
        for event in events:
            if event.role == "gradient":
                self.graded.setdefault(event.name, set()).add(event.step)
                continue
            if event.digest is not None and first.setdefault(event.name, event.digest) != (
                event.digest
            ):
                self.changed.add(event.name)
            if event.phase == "optimizer":
                self._of_step(event, before)
            elif _is_trained_with(event, facts):
                self.read.setdefault(event.name, {}).setdefault(event.step, event)

    def _of_step(self, event: Event, before: dict[tuple[int, str], int | None]) -> None:
        if event.io == "input":
            before[event.index, event.slot] = event.digest
            return
        self.written.add(event.name)
        moved = before.get((event.index, event.slot), event.digest) != event.digest
        if moved and event.requires_grad is False:
            self.thawed.setdefault(event.name, event)


def _is_trained_with(event: Event, facts: Facts) -> bool:
    """Whether a call computes with a parameter that is to be trained, in a module that is."""
    wanted = event.io == "input" and event.phase == "forward" and bool(event.requires_grad)
    return wanted and facts.trains(event.name.rpartition(".")[0], event.index)


def untrained(story: Story) -> Iterator[Note]:
    """At most one warning of each kind for a process."""
    for process, events in story.of_processes():
        facts = story.facts[process]
        if not any(each.steps >= STEPS for each in facts.optimizers):
            continue
        fates = Fates(events, facts)
        learning = {event.step for event in events if event.role == "gradient"}
        yield from _nothing_trained(process, fates, facts, events)
        yield from _without_gradient(process, fates, facts, learning)
        yield from _without_optimizer(process, fates, facts, events)
        names = sorted(facts.held & set(fates.thawed))
        if names:
            first = min((fates.thawed[name] for name in names), key=lambda event: event.index)
            yield Note(
                kind="frozen-parameter-changed",
                process=process,
                index=first.index,
                words=f"{listed(names)} require no gradient and are moved by the optimizer",
                parameters=tuple(names),
            )
        yield from _parted(process, facts, events)


def _nothing_trained(
    process: int, fates: Fates, facts: Facts, events: Sequence[Event]
) -> Iterator[Note]:
    """Where optimizers step, and nothing that they hold gets a gradient or is written, ever."""
    if fates.graded or fates.written or fates.changed:
        return
    used = [
        event
        for event in events
        if event.io == "input" and event.phase == "forward" and event.name in facts.held
    ]
    if len({event.step for event in used}) < STEPS:
        return
    names = sorted({event.name for event in used})
    yield Note(
        kind="nothing-trained",
        process=process,
        index=used[0].index,
        words=(
            f"the optimizer steps and changes nothing: {listed(names)}, which it holds, never get "
            "a gradient"
        ),
        parameters=tuple(names),
    )


def _without_gradient(
    process: int, fates: Fates, facts: Facts, learning: set[int]
) -> Iterator[Note]:
    names = sorted(
        name
        for name, steps in fates.read.items()
        if name in facts.held
        and name not in fates.graded
        and name not in fates.written
        and len(learning & set(steps)) >= STEPS
    )
    if names and fates.graded:
        first = min(fates.read[names[0]].values(), key=lambda event: event.index)
        yield Note(
            kind="parameters-without-gradient",
            process=process,
            index=first.index,
            words=(
                f"{listed(names)} are computed with and held by an optimizer, and never get a "
                "gradient"
            ),
            parameters=tuple(names),
        )


def _without_optimizer(
    process: int, fates: Fates, facts: Facts, events: Sequence[Event]
) -> Iterator[Note]:
    names = sorted(
        name
        for name, steps in fates.graded.items()
        if name not in facts.held
        and name in fates.read
        and name not in fates.changed
        and len(steps) >= STEPS
    )
    beside = any(name in facts.held for name in fates.graded)
    idle = not any(event.role == "parameter" and event.phase == "optimizer" for event in events)
    if not names or not (beside or idle):
        return
    why = "" if beside else ": it was made of the parameters of another model"
    yield Note(
        kind="parameters-without-optimizer",
        process=process,
        index=fates.read[names[0]][min(fates.read[names[0]])].index,
        words=f"{listed(names)} get gradients, and no optimizer that steps holds them{why}",
        parameters=tuple(names),
    )


def _parted(process: int, facts: Facts, events: Sequence[Event]) -> Iterator[Note]:
    for parted in facts.parted:
        event_at = next((event for event in events if event.step == parted.step), events[-1])
        yield Note(
            kind="tied-parameters-parted",
            process=process,
            index=event_at.index,
            words=(
                f"{listed(parted.parameters)} were one parameter, and are not from step "
                f"{parted.step} on"
            ),
            parameters=parted.parameters,
        )
