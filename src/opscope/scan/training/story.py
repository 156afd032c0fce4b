# SPDX-License-Identifier: Apache-2.0
"""What every rule is asked about: how parameters and gradients fared, call by call, and what a rule
says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.run.keys import key, merged
from opscope.scan.training.facts import Facts, facts_of

if TYPE_CHECKING:
    from opscope.arrays import Ints
    from opscope.questions.tables import Tables

SAMPLED = 32  # steps that are looked at, the first and the last ones
_EVENTS = """
    SELECT c.process, c.rank, c.step, c."index", c.op, c.phase, t.io, t.slot, t.role,
        t.tensor_name, t.storage, t.version, t.dtype, t.requires_grad, t.digest, t.size,
        t.min, t.max
    FROM near_calls c SEMI JOIN wanted USING (process, "index")
    JOIN near_tensors t ON t.process = c.process AND t."index" = c."index"
    WHERE c.level = 'operator' AND t.role IN ('parameter', 'gradient')
        AND t.tensor_name IS NOT NULL
    ORDER BY c.process, c."index", t.io, t.slot
"""

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
    ask.
    """

    tables: Tables
    spans: Spans
    events: Sequence[Event]
    facts: Mapping[int, Facts]

    def of_processes(self) -> Iterator[tuple[int, list[Event]]]:
        """Events of each process."""
        by_process: dict[int, list[Event]] = {}
        for event in self.events:
            by_process.setdefault(event.process, []).append(event)
        yield from by_process.items()

    @property
    def calls(self) -> Ints:
        """Numbers of all calls of the sampled steps."""
        return calls_in(self.spans)


def read_story(tables: Tables, spans: Spans) -> Story:
    """Spans are the first and last calls of each (process, rank, step)."""
    sampled = sampled_steps(spans)
    wanted = calls_in(sampled)
    rows = tables.rows(_EVENTS, wanted=wanted) if wanted.size else []
    facts = {process.process: facts_of(process.torch) for process in tables.run.processes}
    return Story(tables, sampled, [Event(*row) for row in rows], defaultdict(Facts, facts))


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


def calls_in(spans: Spans) -> Ints:
    """Numbers of the calls between the first and the last of each span."""
    return merged(
        [
            np.arange(key(owner[0], first), key(owner[0], last) + 1, dtype=np.int64)
            for owner, (first, last) in spans.items()
        ]
    )
