# SPDX-License-Identifier: Apache-2.0
"""Data that comes again: the same batch in every step, though it is loaded anew, and a shuffle that
draws the same order twice.

A training on one batch that it keeps is meant so: those tensors have one version. A loader that is
begun again in every step, or seeded alike in every epoch, makes new tensors of the same content.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING

from opscope.run.query import rows_of
from opscope.run.vectors import calls_of
from opscope.scan.training.story import Given, Note, Story

if TYPE_CHECKING:
    from opscope.run.protocol import Run

STEPS = 4  # in a row that see the same batch
SHUFFLED = 8  # elements: 8! orders, so that two alike are no accident


def repeated_data(story: Story) -> Iterator[Note]:
    """At most one warning of each kind for a process."""
    yield from _same_batch(story)
    yield from _same_order(story)


def _same_batch(story: Story) -> Iterator[Note]:
    steps: dict[int, list[list[Given]]] = {}
    given = (each for each in story.given if not each.requires_grad)
    for (process, _), batch in groupby(given, key=attrgetter("process", "step")):
        steps.setdefault(process, []).append(list(batch))
    for process, seen in steps.items():
        if len(seen) >= STEPS and all(_again(one, other) for one, other in pairwise(seen)):
            yield Note(
                kind="repeated-batch",
                process=process,
                index=seen[1][0].index,
                words=(
                    f"the model gets the same batch in all of {len(seen)} steps, made anew in each"
                ),
            )


def _again(one: Sequence[Given], other: Sequence[Given]) -> bool:
    """Whether two steps are given the same, made anew."""
    digests = [each.digest for each in one]
    return (
        digests == [each.digest for each in other]
        and None not in digests
        and any(map(_telling, other))
        and {each.version for each in one}.isdisjoint(each.version for each in other)
    )


def _telling(given: Given) -> bool:
    """Whether a tensor is not one number everywhere."""
    if given.size is None or given.min is None or given.max is None:
        return False
    return given.size > 1 and given.min < given.max


def _shuffles(run: Run) -> list[tuple[int, str | None, int, int, int]]:
    """Process, source, step, index and digest of each shuffle, line by line in order."""
    calls = calls_of(run, lambda op: op.startswith("aten::randperm"))
    columns: tuple[str, ...] = ("process", "index", "source", "step")
    drawing = {
        (process, index): (source, step)
        for process, index, source, step in rows_of(run, "calls", columns, calls)
    }
    drawn = []
    columns = ("process", "index", "io", "size", "digest")
    for process, index, io, size, digest in rows_of(run, "tensors", columns, calls):
        if io == "output" and (size or 0) >= SHUFFLED and digest is not None:
            drawn.append((process, *drawing[process, index], index, digest))
    return sorted(drawn, key=lambda one: (one[0], one[1] is None, one[1] or "", one[3]))


def _same_order(story: Story) -> Iterator[Note]:
    drawn: dict[tuple[int, str | None], dict[int, int]] = {}
    told: set[int] = set()
    for process, source, step, index, digest in _shuffles(story.run):
        orders = drawn.setdefault((process, source), {})
        if orders.get(digest, step) != step and process not in told:
            told.add(process)
            yield Note(
                kind="repeated-order",
                process=process,
                index=index,
                words=(
                    f"a shuffle draws the order that it drew in step {orders[digest]}: it is "
                    "seeded alike"
                ),
            )
        orders.setdefault(digest, step)
