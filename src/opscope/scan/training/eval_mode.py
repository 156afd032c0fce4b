# SPDX-License-Identifier: Apache-2.0
"""What a model in eval mode should not do: drop elements at random, or go on learning statistics.

A module that was put back into training mode on its own (dropout of Monte Carlo) is meant to drop;
`F.dropout` without the module's mode, and attention with a probability of its own, drop in a module
that is in eval mode itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from opscope.run.keys import keys_at
from opscope.run.query import rows_of, rows_where, which
from opscope.scan.training.facts import Facts
from opscope.scan.training.story import Note, Story


def eval_mode(story: Story) -> Iterator[Note]:
    """One warning for each module."""
    if not any(facts.modes for facts in story.facts.values()):
        return
    told: set[tuple[int, str]] = set()
    for process, index, module, op in _forward(story, _drops):
        facts = story.facts[process]
        if (process, module) not in told and not facts.trains(module, index):
            told.add((process, module))
            yield Note(
                kind="randomness-in-eval",
                process=process,
                index=index,
                words=f"{_named(module)} is in eval mode and drops elements at random ({op})",
            )
    for process, index, module, name in _learnt(story):
        if (process, module) not in told and _within_eval(story.facts[process], module, index):
            told.add((process, module))
            yield Note(
                kind="normalisation-in-eval",
                process=process,
                index=index,
                words=f"{name} changes while the model is in eval mode: {module} is in train mode",
            )


def _drops(op: str) -> bool:
    return op.startswith("aten::") and (
        "native_dropout" in op or op.startswith("aten::bernoulli_.float")
    )


def _normalises(op: str) -> bool:
    return op.startswith("aten::") and "batch_norm" in op


def _forward(story: Story, chosen: Callable[[str], bool]) -> list[tuple[int, int, str, str]]:
    """Process, index, module and operator of such operators in the forward passes of modules, in
    order.
    """
    names = ("process", "index", "module", "op", "level", "phase")
    rows = rows_where(
        story.run, "calls", names, lambda batch: which(batch["op"], chosen), story.calls
    )
    return sorted(
        (process, index, module, op)
        for process, index, module, op, level, phase in rows
        if level == "operator" and phase == "forward" and module is not None
    )


def _learnt(story: Story) -> Iterator[tuple[int, int, str, str | None]]:
    """Process, index and module of normalisations that change a buffer, and its name, in order."""
    calls = _forward(story, _normalises)
    names = ("process", "index", "io", "slot", "digest", "tensor_name", "role")
    given: dict[tuple[int, int, str], int] = {}
    left: dict[tuple[int, int], list[tuple[str, int, str | None]]] = {}
    asked = keys_at(call[:2] for call in calls)
    for process, index, io, slot, digest, name, role in rows_of(story.run, "tensors", names, asked):
        if role == "buffer" and digest is not None:
            if io == "input":
                given[process, index, slot] = digest
            else:
                left.setdefault((process, index), []).append((slot, digest, name))
    for process, index, module, _ in calls:
        for slot, digest, name in left.get((process, index), ()):
            if given.get((process, index, slot), digest) != digest:
                yield process, index, module, name


def _named(module: str) -> str:
    return module or "the model"


def _within_eval(facts: Facts, module: str, index: int) -> bool:
    """Whether a module or one that holds it is in eval mode."""
    parts = module.split(".")
    return any(not facts.trains(".".join(parts[:size]), index) for size in range(len(parts) + 1))
