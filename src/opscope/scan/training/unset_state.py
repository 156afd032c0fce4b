# SPDX-License-Identifier: Apache-2.0
"""Memory that nobody wrote, read by an optimizer as its state.

An optimizer that does its step in one operator takes its state from `empty_like` and leaves it to
the first step to write it. Where that step is skipped (found_inf of a GradScaler), the next one
reads what the memory held.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from opscope.questions.findings import listed
from opscope.questions.tables import Tables
from opscope.scan.training.story import Note, Story

# Steps of optimizers in one operator that have state nobody wrote, or are skipped, and their later
# ones: the state's storage, whether it was read, and the parameter at its position.
_STATES = """
    WITH steps AS (
        SELECT c.process, c."index", c.args, any_value(f.max) AS skipped
        FROM near_calls c SEMI JOIN wanted USING (process, "index")
        LEFT JOIN near_tensors f ON f.process = c.process AND f."index" = c."index"
            AND f.slot = 'kwargs.found_inf' AND f.io = 'input'
        WHERE c.op LIKE 'aten::\\_fused\\_%' ESCAPE '\\' AND c.phase = 'optimizer'
        GROUP BY ALL)
    SELECT s.process, s."index", s.args, s.skipped, t.storage, t.digest IS NULL, p.tensor_name
    FROM steps s
    JOIN near_tensors t ON t.process = s.process AND t."index" = s."index" AND t.io = 'input'
        AND t.role IS NULL AND t.slot LIKE '%.%' AND t.slot NOT LIKE 'kwargs.%'
        AND t.size IS DISTINCT FROM 0
    LEFT JOIN near_tensors p ON p.process = s.process AND p."index" = s."index"
        AND p.io = 'input' AND p.role = 'parameter'
        AND p.slot = '0.' || split_part(t.slot, '.', 2)
    ORDER BY s.process, s."index", t.slot
"""


class _Read(msgspec.Struct, frozen=True):
    """One tensor of state as a step reads it."""

    process: int
    index: int
    args: str | None
    skipped: float | None
    storage: int | None
    unset: bool
    parameter: str | None


def unset_state(story: Story) -> Iterator[Note]:
    """A finding for the step that reads what a skipped first step did not write."""
    by_call: dict[tuple[int, int], list[_Read]] = {}
    for read in _of_unset_memory(story.tables, story):
        by_call.setdefault((read.process, read.index), []).append(read)
    for (process, index), reads in by_call.items():
        names = sorted({read.parameter for read in reads if read.parameter is not None})
        whose = f" of {listed(names)}" if names else ""
        yield Note(
            kind="unset-memory",
            process=process,
            index=index,
            words=(
                f"the optimizer's state{whose} is read, which nobody wrote: its first step was "
                "skipped, and left what the memory held"
            ),
            parameters=tuple(names),
            finding=True,
            order=-1,  # what is not finite later may come of it
        )


def _of_unset_memory(tables: Tables, story: Story) -> Iterator[_Read]:
    """The first read of each state whose only writers were skipped steps."""
    blank: set[tuple[int, int | None]] = set()
    for row in tables.rows(_STATES, wanted=story.calls):
        read = _Read(*row)
        state = (read.process, read.storage)
        if read.skipped:
            if read.unset:
                blank.add(state)
        elif state in blank:
            blank.discard(state)
            if not _is_first(read.args):
                yield read


def _is_first(args: str | None) -> bool:
    """Whether the operator is told to write its state, not to read it."""
    try:
        tree = msgspec.json.decode(args or "null")
    except (msgspec.DecodeError, RecursionError, ValueError):
        return False
    named = tree.get("kwargs") if isinstance(tree, dict) else None
    return isinstance(named, dict) and named.get("is_first_step") is True
