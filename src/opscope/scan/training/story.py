# SPDX-License-Identifier: Apache-2.0
"""What every rule is asked about: how parameters and gradients fared, call by call, and what a rule
says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.run.keys import key, keys_at, keys_of, merged
from opscope.run.query import keys_where, rows_of, rows_where, which
from opscope.scan.training.facts import Facts, facts_of

if TYPE_CHECKING:
    from opscope.arrays import Array, Bools, Ints
    from opscope.run.protocol import Run

SAMPLED = 32  # steps that are looked at, the first and the last ones

# Columns of tensors that make an event, behind those of its call.
_OF_TENSOR = (
    "io",
    "slot",
    "role",
    "tensor_name",
    "storage",
    "version",
    "dtype",
    "requires_grad",
    "digest",
    "size",
    "min",
    "max",
)

_GIVEN = ("storage", "version", "requires_grad", "digest", "size", "min", "max")

Spans = Mapping[tuple[int, int, int], tuple[int, int]]


class Event(msgspec.Struct, frozen=True, gc=False):
    """A parameter or a gradient as one call of an operator reads or leaves it."""

    process: int
    rank: int
    step: int
    index: int
    op: str
    phase: str
    io: str
    slot: str
    role: str
    name: str
    storage: int | None
    version: int | None
    dtype: str
    requires_grad: bool | None
    digest: int | None
    size: int | None
    min: float | None
    max: float | None

    @property
    def largest(self) -> float | None:
        """The largest magnitude among its finite elements; None where nobody read them."""
        return None if self.min is None or self.max is None else max(-self.min, self.max)


class Given(msgspec.Struct, frozen=True, gc=False):
    """An input of a model that is called from outside of any other, in a step with a backward pass;
    no parameter, gradient or buffer.
    """

    process: int
    step: int
    index: int
    slot: str
    module: str | None
    op: str
    storage: int | None
    version: int | None
    requires_grad: bool | None
    digest: int | None
    size: int | None
    min: float | None
    max: float | None


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule says of one call: a finding where a contract is broken, else a warning about what
    was meant.

    parameters: those it is about. order: that of its finding (questions.findings). evidence: what
    else is known, of a finding.
    """

    kind: str
    process: int
    index: int
    words: str
    parameters: tuple[str, ...] = ()
    finding: bool = False
    order: int = 1
    confidence: str = "proven"
    evidence: dict[str, Any] = {}


class Story(msgspec.Struct, frozen=True):
    """Events of the sampled steps, in the order of their calls, inputs first; and where else to
    ask. calls: numbers of all calls of those steps; given: by process, step, call and slot.
    """

    run: Run
    spans: Spans
    calls: Ints
    events: Sequence[Event]
    given: Sequence[Given]
    facts: Mapping[int, Facts]

    def of_processes(self) -> Iterator[tuple[int, list[Event]]]:
        """Events of each process."""
        by_process: dict[int, list[Event]] = {}
        for event in self.events:
            by_process.setdefault(event.process, []).append(event)
        yield from by_process.items()


def read_story(run: Run, spans: Spans) -> Story:
    """Spans are the first and last calls of each (process, rank, step)."""
    sampled = sampled_steps(spans)
    calls = calls_in(run, sampled)
    facts = {process.process: facts_of(process.torch) for process in run.processes}
    return Story(
        run, sampled, calls, _events(run, calls), _given(run, calls), defaultdict(Facts, facts)
    )


def _events(run: Run, calls: Ints) -> list[Event]:
    names: tuple[str, ...] = ("process", "index", *_OF_TENSOR)
    rows = sorted(rows_where(run, "tensors", names, _is_event, calls), key=itemgetter(0, 1, 2, 3))
    names = ("process", "index", "rank", "step", "op", "phase", "level")
    operators = {
        (process, index): (rank, step, index, op, phase)
        for process, index, rank, step, op, phase, level in rows_of(
            run, "calls", names, keys_at(row[:2] for row in rows)
        )
        if level == "operator"
    }
    return [
        Event(row[0], *call, *row[2:])
        for row in rows
        if (call := operators.get(row[:2])) is not None
    ]


def _given(run: Run, calls: Ints) -> list[Given]:
    asked = ("process", "index", "step", "module", "op", "parent", "level", "phase")
    outer = {row[:2]: row[2:5] for row in rows_where(run, "calls", asked, _is_outer, calls)}
    learning = _learning(run, calls) if outer else frozenset()
    names = ("process", "index", "io", "slot", "role", *_GIVEN)
    given = []
    for process, index, io, slot, role, *state in rows_of(run, "tensors", names, keys_at(outer)):
        step, module, op = outer[process, index]
        if io == "input" and role is None and (process, step) in learning:
            given.append(Given(process, step, index, slot, module, op, *state))
    return sorted(given, key=attrgetter("process", "step", "index", "slot"))


def _is_outer(batch: Mapping[str, Array]) -> Bools:
    """Which calls are forward ones of a model, inside of nothing."""
    outer = np.ma.getmaskarray(batch["parent"])
    return np.asarray(outer & (batch["level"] == "module") & (batch["phase"] == "forward"))


def _learning(run: Run, calls: Ints) -> frozenset[tuple[int, int]]:
    """Processes and their steps that have a backward pass."""
    rows = rows_where(
        run,
        "calls",
        ("process", "step", "phase"),
        lambda batch: batch["phase"] == "backward",
        calls,
    )
    return frozenset((process, step) for process, step, _ in rows)


def _is_event(batch: Mapping[str, Array]) -> Bools:
    followed = which(batch["role"], {"parameter", "gradient"}.__contains__)
    if not followed.any():
        return followed
    return followed & which(batch["tensor_name"], lambda name: name is not None)


def sampled_steps(spans: Spans) -> Spans:
    """The first and the last steps of each process."""
    steps: dict[int, set[int]] = {}
    for process, _, step in spans:
        steps.setdefault(process, set()).add(step)
    half = SAMPLED // 2
    kept = {
        process: {*sorted(own_steps)[:half], *sorted(own_steps)[-half:]}
        for process, own_steps in steps.items()
    }
    return {
        step_of_rank: span
        for step_of_rank, span in spans.items()
        if step_of_rank[2] in kept[step_of_rank[0]]
    }


def calls_in(run: Run, spans: Spans) -> Ints:
    """Numbers of the calls between the first and the last of each span, sorted."""
    if not spans:
        return merged([])
    ends = sorted(
        (key(owner[0], first), key(owner[0], last)) for owner, (first, last) in spans.items()
    )
    firsts, lasts = (np.array(each, dtype=np.int64) for each in zip(*ends, strict=True))
    lasts = np.maximum.accumulate(lasts)

    def within(batch: Mapping[str, Array]) -> Bools:
        calls = keys_of(batch["process"], batch["index"])
        at = np.searchsorted(firsts, calls, side="right") - 1
        return np.asarray((at >= 0) & (calls <= lasts[at]))

    return keys_where(run, "calls", (), within)
