# SPDX-License-Identifier: Apache-2.0
"""What a model in eval mode should not do: drop elements at random, or go on learning statistics.

A module that was put back into training mode on its own (dropout of Monte Carlo) is meant to drop;
`F.dropout` without the module's mode, and attention with a probability of its own, drop in a module
that is in eval mode itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from opscope.scan.training.facts import Facts
from opscope.scan.training.story import Note, Story

_DROPS = """
    SELECT c.process, c."index", c.module, c.op FROM near_calls c SEMI JOIN wanted
    USING (process, "index")
    WHERE c.level = 'operator' AND c.phase = 'forward' AND c.module IS NOT NULL
        AND (c.op LIKE 'aten::bernoulli\\_.float%' ESCAPE '\\'
            OR c.op LIKE 'aten::%native\\_dropout%' ESCAPE '\\')
    ORDER BY c.process, c."index"
"""
_LEARNT = """
    SELECT c.process, c."index", c.module, o.tensor_name FROM near_calls c SEMI JOIN wanted
    USING (process, "index")
    JOIN near_tensors i ON i.process = c.process AND i."index" = c."index" AND i.io = 'input'
        AND i.role = 'buffer'
    JOIN near_tensors o ON o.process = c.process AND o."index" = c."index" AND o.io = 'output'
        AND o.role = 'buffer' AND o.slot = i.slot
    WHERE c.level = 'operator' AND c.phase = 'forward' AND c.module IS NOT NULL
        AND c.op LIKE 'aten::%batch\\_norm%' ESCAPE '\\' AND o.digest <> i.digest
    ORDER BY c.process, c."index"
"""


def eval_mode(story: Story) -> Iterator[Note]:
    """One warning for each module."""
    if not any(facts.modes for facts in story.facts.values()):
        return
    told: set[tuple[int, str]] = set()
    for process, index, module, op in story.tables.rows(_DROPS, wanted=story.calls):
        facts = story.facts[process]
        if (process, module) not in told and not facts.trains(module, index):
            told.add((process, module))
            yield Note(
                kind="randomness-in-eval",
                process=process,
                index=index,
                words=f"{_named(module)} is in eval mode and drops elements at random ({op})",
            )
    for process, index, module, name in story.tables.rows(_LEARNT, wanted=story.calls):
        if (process, module) not in told and _within_eval(story.facts[process], module, index):
            told.add((process, module))
            yield Note(
                kind="normalisation-in-eval",
                process=process,
                index=index,
                words=f"{name} changes while the model is in eval mode: {module} is in train mode",
            )


def _named(module: str) -> str:
    return module or "the model"


def _within_eval(facts: Facts, module: str, index: int) -> bool:
    """Whether a module or one that holds it is in eval mode."""
    parts = module.split(".")
    return any(not facts.trains(".".join(parts[:size]), index) for size in range(len(parts) + 1))
