# SPDX-License-Identifier: Apache-2.0
"""Gradients of a sharded model that each rank scales by a number of its own: clipped by the norm of
its shards alone, which is not that of the gradient.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from opscope.questions.findings import listed
from opscope.scan.training.story import Note, Story

STEPS = 2  # in which the numbers differ, before anything is said
# What is multiplied by one number and then used to change a shard, known again by its bits: local
# tensors of sharded gradients are made anew each time that somebody asks for them.
_SCALED = """
    SELECT DISTINCT m.process, m.step, m."index", n.min, p.tensor_name
    FROM near_calls m
    JOIN near_tensors n ON n.process = m.process AND n."index" = m."index"
        AND n.io = 'input' AND n.size = 1 AND n.min IS NOT NULL
    JOIN near_tensors o ON o.process = m.process AND o."index" = m."index"
        AND o.io = 'output' AND o.size > 1 AND o.digest IS NOT NULL
    JOIN near_tensors g ON g.process = m.process AND g.digest = o.digest AND g.io = 'input'
        AND g."index" > m."index"
    JOIN near_calls u ON u.process = g.process AND u."index" = g."index"
        AND u.phase = 'optimizer' AND u.step = m.step
    JOIN near_tensors p ON p.process = u.process AND p."index" = u."index"
        AND p.io = 'input' AND p.role = 'shard' AND p.tensor_name IS NOT NULL
    WHERE m.op IN ('aten::mul_.Tensor', 'aten::_foreach_mul_.Tensor')
    ORDER BY m.process, m."index"
"""


_ANY_SHARD = """
    SELECT 1 FROM near_tensors t SEMI JOIN wanted USING (process, "index")
    WHERE t.role = 'shard' LIMIT 1
"""


class Scaled(NamedTuple):
    """A call by which one rank scaled what it changed a shard by, and the number."""

    process: int
    step: int
    call: int
    number: float
    name: str


def clipped_apart(story: Story) -> Iterator[Note]:
    """At most one warning, at the first such call of the lowest process."""
    ranks = {process for process, _, _ in story.spans}
    if len(ranks) < 2 or not story.tables.rows(_ANY_SHARD, wanted=story.calls):
        return
    rows = [Scaled(*row) for row in story.tables.rows(_SCALED, wanted=story.calls)]
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


def _differ(numbers: list[set[float]]) -> bool:
    """Whether several ranks scaled, and no number is common to them."""
    return len(numbers) > 1 and not set.intersection(*numbers)
