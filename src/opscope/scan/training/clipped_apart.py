# SPDX-License-Identifier: Apache-2.0
"""Gradients of a sharded model that each rank scales by a number of its own: clipped by the norm of
its shards alone, which is not that of the gradient.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from opscope.questions.findings import listed
from opscope.run.keys import keys_at
from opscope.run.query import chosen_columns, rows_of, rows_where, which
from opscope.scan.training.story import Note, Story

STEPS = 2  # in which the numbers differ, before anything is said
_SCALING = frozenset({"aten::mul_.Tensor", "aten::_foreach_mul_.Tensor"})


class Scaled(NamedTuple):
    """A call by which one rank scaled what it changed a shard by, and the number."""

    process: int
    step: int
    call: int
    number: float
    name: str


class _Call(msgspec.Struct):
    """What a call reads and leaves; scales: it multiplies in place, steps: it is an optimizer's."""

    step: int
    scales: bool
    steps: bool
    numbers: list[float] = []
    given: list[int] = []
    left: list[int] = []
    shards: list[str] = []


def clipped_apart(story: Story) -> Iterator[Note]:
    """At most one warning, at the first such call of the lowest process."""
    ranks = {process for process, _, _ in story.spans}
    if len(ranks) < 2 or not _has_shards(story):
        return
    rows = _scaled(story)
    by_step: dict[tuple[str, int], dict[int, set[float]]] = defaultdict(lambda: defaultdict(set))
    for row in rows:
        by_step[row.name, row.step][row.process].add(row.number)
    apart = {
        parameter_in_step
        for parameter_in_step, factors in by_step.items()
        if _differ(list(factors.values()))
    }
    if len({step for _, step in apart}) < STEPS:
        return
    names = sorted({name for name, _ in apart})
    first = next(row for row in rows if (row.name, row.step) in apart)
    numbers = sorted(min(factors) for factors in by_step[first.name, first.step].values())
    yield Note(
        kind="clipped-apart",
        process=first.process,
        index=first.call,
        words=(
            f"gradients of {listed(names)}, of which each rank holds a part, are scaled by another "
            f"number on each rank ({numbers[0]:.3g} to {numbers[-1]:.3g} in step {first.step}): "
            "by the norm of its own part?"
        ),
        parameters=tuple(names),
    )


def _has_shards(story: Story) -> bool:
    batches = chosen_columns(story.run, "tensors", ("role",), story.calls)
    return any((role == "shard").any() for (role,) in batches)


def _scaled(story: Story) -> list[Scaled]:
    """What is multiplied by one number and then used to change a shard, known again by its bits:
    local tensors of sharded gradients are made anew each time that somebody asks for them.
    """
    calls = _calls(story)
    made: dict[tuple[int, int, int], list[tuple[int, float]]] = defaultdict(list)
    for (process, index), call in calls.items():
        if call.scales:
            for digest in call.left:
                made[process, call.step, digest] += [(index, number) for number in call.numbers]
    used = {
        Scaled(process, call.step, index, number, name)
        for (process, last), call in calls.items()
        if call.steps
        for digest in call.given
        for index, number in made.get((process, call.step, digest), ())
        if index < last
        for name in call.shards
    }
    return sorted(used, key=lambda one: (one.process, one.call, one))


def _calls(story: Story) -> dict[tuple[int, int], _Call]:
    """Calls that scale something, and those of optimizers, by process and index."""
    names: tuple[str, ...] = ("process", "index", "step", "op", "phase")
    calls = {
        (process, index): _Call(step, scales=op in _SCALING, steps=phase == "optimizer")
        for process, index, step, op, phase in rows_where(
            story.run,
            "calls",
            names,
            lambda batch: (
                (batch["phase"] == "optimizer") | which(batch["op"], _SCALING.__contains__)
            ),
            story.calls,
        )
    }
    names = ("process", "index", "io", "size", "min", "digest", "role", "tensor_name")
    for process, index, io, size, least, digest, role, name in rows_of(
        story.run, "tensors", names, keys_at(calls)
    ):
        call = calls[process, index]
        if io == "output":
            if (size or 0) > 1 and digest is not None:
                call.left.append(digest)
            continue
        if size == 1 and least is not None:
            call.numbers.append(least)
        if digest is not None:
            call.given.append(digest)
        if role == "shard" and name is not None:
            call.shards.append(name)
    return calls


def _differ(numbers: list[set[float]]) -> bool:
    """Whether several ranks scaled, and no number is common to them."""
    return len(numbers) > 1 and not set.intersection(*numbers)
