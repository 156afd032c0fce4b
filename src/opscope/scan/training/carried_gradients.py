# SPDX-License-Identifier: Apache-2.0
"""Gradients that an optimizer has used and that the next backward pass adds to: not zeroed between
steps.

Accumulation on purpose is told apart by the optimizer's cadence: what is added up before a step is
meant, what was there at the step before is not, unless somebody zeroes it before the next one (a
GAN's generator leaves gradients in the discriminator).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opscope.operators.catalogue import family, traits_of
from opscope.questions.findings import listed
from opscope.scan.training.story import Event, Note, Story

TIMES = 2  # steps in a row that a gradient has to be carried over

_ADDS = frozenset({"add", "_foreach_add"})


def carried_gradients(story: Story) -> Iterator[Note]:
    """One warning a process, at the first addition to a gradient that was used."""
    for process, events in story.of_processes():
        carried = {
            name: first
            for name, own in _by_name(events).items()
            if (first := _carried(own)) is not None
        }
        if not carried:
            continue
        names = sorted(carried)
        first = min(carried.values(), key=lambda event: event.index)
        yield Note(
            kind="gradients-not-zeroed",
            process=process,
            index=first.index,
            words=(
                f"gradients of {listed(names)} are not zeroed between steps: backward adds to what "
                "the optimizer has used already"
            ),
            parameters=tuple(names),
        )


def _by_name(events: Sequence[Event]) -> dict[str, list[Event]]:
    by_name: dict[str, list[Event]] = {}
    for event in events:
        if event.io == "output":
            by_name.setdefault(event.name, []).append(event)
    return by_name


def _carried(events: Sequence[Event]) -> Event | None:
    """The first addition to a used gradient, where all later steps go on from one too."""
    held: int | None = None  # the storage of the gradient
    used, times, anew = False, 0, 0
    added: Event | None = None
    first: Event | None = None
    for event in events:
        if event.role == "gradient":
            if event.storage is None or event.storage != held or _resets(event):
                held, used, added = event.storage, False, None
            elif used and event.phase == "backward" and family(event.op) in _ADDS:
                added = added or event
        elif event.phase == "optimizer":
            times += added is not None
            anew += not used
            first = first or added
            used, added = True, None
    return first if times >= TIMES and anew <= 1 else None


def _resets(event: Event) -> bool:
    """Whether a call leaves a gradient that does not depend on what it was."""
    known = traits_of(event.op)
    if event.phase != "backward" and (known.overwrites, known.bound) == ("0", "overwritten"):
        return True
    return event.min == 0.0 and event.max == 0.0
