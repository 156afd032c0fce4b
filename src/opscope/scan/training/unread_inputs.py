# SPDX-License-Identifier: Apache-2.0
"""Inputs of a model that its results do not depend on: no operator reads them, step after step."""

from __future__ import annotations

from collections.abc import Iterator

from opscope.scan.training.story import Note, Story

STEPS = 3  # with a backward pass in which an input is not read

# Inputs of models that were called from outside of any other, in steps that have a
# backward pass, and whether an operator of the step reads their memory after it was given.
_INPUTS = """
    WITH read AS (
        SELECT c.process, c.step, t.storage, max(c."index") AS last
        FROM near_calls c SEMI JOIN wanted USING (process, "index")
        JOIN near_tensors t ON t.process = c.process AND t."index" = c."index" AND t.io = 'input'
        WHERE c.level = 'operator' GROUP BY ALL)
    SELECT c.process, c.module, c.op, t.slot, min(c."index"), count(DISTINCT c.step),
        count(DISTINCT c.step) FILTER (r.last > c."index")
    FROM near_calls c SEMI JOIN wanted USING (process, "index")
    JOIN near_tensors t ON t.process = c.process AND t."index" = c."index" AND t.io = 'input'
    LEFT JOIN read r ON r.process = c.process AND r.step = c.step AND r.storage = t.storage
    WHERE c.level = 'module' AND c.parent IS NULL AND c.phase = 'forward'
        AND t.storage IS NOT NULL AND t.role IS NULL AND t.size > 1
        AND (c.process, c.step) IN
            (SELECT (b.process, b.step) FROM near_calls b WHERE b.phase = 'backward')
    GROUP BY ALL ORDER BY min(c."index"), t.slot
"""


def unread_inputs(story: Story) -> Iterator[Note]:
    """One warning for each input of a model."""
    for process, module, op, slot, index, steps, read in story.tables.rows(
        _INPUTS, wanted=story.calls
    ):
        if steps >= STEPS and not read:
            whose = f"{module} ({op})" if module else op
            yield Note(
                kind="input-not-read",
                process=process,
                index=index,
                words=f"no operator reads input {slot} of {whose} in any of {steps} steps",
            )
