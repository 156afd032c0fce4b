# SPDX-License-Identifier: Apache-2.0
"""Data that comes again: the same batch in every step, though it is loaded anew, and a shuffle that
draws the same order twice.

A training on one batch that it keeps is meant so: those tensors have one version. A loader that is
begun again in every step, or seeded alike in every epoch, makes new tensors of the same content.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from opscope.scan.training.story import Note, Story

STEPS = 4  # in a row that see the same batch
SHUFFLED = 8  # elements: 8! orders, so that two alike are no accident

# What models are called with from outside of any other, in steps that have a backward pass.
_BATCHES = """
    SELECT c.process, c.step, min(c."index"), list(t.digest ORDER BY c."index", t.slot),
        list(t.version ORDER BY c."index", t.slot), bool_or(t.size > 1 AND t.min < t.max)
    FROM near_calls c SEMI JOIN wanted USING (process, "index")
    JOIN near_tensors t ON t.process = c.process AND t."index" = c."index" AND t.io = 'input'
    WHERE c.level = 'module' AND c.parent IS NULL AND c.phase = 'forward'
        AND t.role IS NULL AND t.requires_grad IS NOT TRUE
        AND (c.process, c.step) IN
            (SELECT (b.process, b.step) FROM near_calls b WHERE b.phase = 'backward')
    GROUP BY ALL ORDER BY c.process, c.step
"""
_SHUFFLES = """
    SELECT c.process, c.source, c.step, c."index", t.digest
    FROM calls c JOIN tensors t ON t.process = c.process AND t."index" = c."index"
    WHERE c.op LIKE 'aten::randperm%' AND t.io = 'output' AND t.size >= ? AND t.digest IS NOT NULL
    ORDER BY c.process, c.source, c."index"
"""


def repeated_data(story: Story) -> Iterator[Note]:
    """At most one warning of each kind for a process."""
    yield from _same_batch(story)
    yield from _same_order(story)


def _same_batch(story: Story) -> Iterator[Note]:
    steps: dict[int, list[tuple[int, list[int | None], list[int | None], bool]]] = {}
    for process, _, index, *batch in story.tables.rows(_BATCHES, wanted=story.calls):
        steps.setdefault(process, []).append((index, *batch))
    for process, seen in steps.items():
        again = len(seen) >= STEPS and all(
            one[1] == other[1]
            and None not in one[1]
            and other[3]
            and not set(one[2]) & set(other[2])
            for one, other in pairwise(seen)
        )
        if again:
            yield Note(
                kind="repeated-batch",
                process=process,
                index=seen[1][0],
                words=(
                    f"the model gets the same batch in all of {len(seen)} steps, made anew in each"
                ),
            )


def _same_order(story: Story) -> Iterator[Note]:
    drawn: dict[tuple[int, str | None], dict[int, int]] = {}
    told: set[int] = set()
    for process, source, step, index, digest in story.tables.rows(_SHUFFLES, [SHUFFLED]):
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
