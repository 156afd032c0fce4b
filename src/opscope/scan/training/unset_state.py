# SPDX-License-Identifier: Apache-2.0
"""Memory that nobody wrote, read by an optimizer as its state.

An optimizer that does its step in one operator takes its state from `empty_like` and leaves it to
the first step to write it. Where that step is skipped (found_inf of a GradScaler), the next one
reads what the memory held.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from opscope.questions.findings import listed
from opscope.run.keys import keys_at
from opscope.run.query import rows_of, rows_where, which
from opscope.scan.training.story import Note, Story


class _Input(NamedTuple):
    """A tensor that a step reads."""

    slot: str
    role: str | None
    storage: int | None
    digest: int | None
    size: int | None
    max: float | None
    tensor_name: str | None


class _Read(msgspec.Struct, frozen=True):
    """One tensor of state as a step reads it."""

    process: int
    index: int
    args: str | None
    skipped: bool
    storage: int | None
    unset: bool
    parameter: str | None


def unset_state(story: Story) -> Iterator[Note]:
    """A finding for the step that reads what a skipped first step did not write."""
    by_call: dict[tuple[int, int], list[_Read]] = {}
    for read in _of_unset_memory(story):
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


def _of_unset_memory(story: Story) -> Iterator[_Read]:
    """The first read of each state whose only writers were skipped steps."""
    blank: set[tuple[int, int | None]] = set()
    for read in _reads(story):
        state = (read.process, read.storage)
        if read.skipped:
            if read.unset:
                blank.add(state)
        elif state in blank:
            blank.discard(state)
            if not _is_first(read.args):
                yield read


def _reads(story: Story) -> Iterator[_Read]:
    """What optimizers read as their state that do their step in one operator, in order."""
    names: tuple[str, ...] = ("process", "index", "args", "op", "phase")
    steps = {
        (process, index): args
        for process, index, args, _, phase in rows_where(
            story.run, "calls", names, lambda batch: which(batch["op"], _is_fused), story.calls
        )
        if phase == "optimizer"
    }
    inputs: dict[tuple[int, int], list[_Input]] = {}
    names = ("process", "index", "io", *_Input._fields)
    for process, index, io, *row in rows_of(story.run, "tensors", names, keys_at(steps)):
        if io == "input":
            inputs.setdefault((process, index), []).append(_Input(*row))
    for (process, index), given in sorted(inputs.items()):
        names_of = {each.slot: each.tensor_name for each in given if each.role == "parameter"}
        skipped = any(each.max for each in given if each.slot == "kwargs.found_inf")
        for each in sorted(filter(_is_state, given), key=lambda state: state.slot):
            yield _Read(
                process=process,
                index=index,
                args=steps[process, index],
                skipped=skipped,
                storage=each.storage,
                unset=each.digest is None,
                parameter=names_of.get(f"0.{each.slot.split('.')[1]}"),
            )


def _is_fused(op: str) -> bool:
    return op.startswith("aten::_fused_")


def _is_state(given: _Input) -> bool:
    listed_at = "." in given.slot and not given.slot.startswith("kwargs.")
    return listed_at and given.role is None and given.size != 0


def _is_first(args: str | None) -> bool:
    """Whether the operator is told to write its state, not to read it."""
    try:
        tree = msgspec.json.decode(args or "null")
    except (msgspec.DecodeError, RecursionError, ValueError):
        return False
    named = tree.get("kwargs") if isinstance(tree, dict) else None
    return isinstance(named, dict) and named.get("is_first_step") is True
