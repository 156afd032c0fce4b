# SPDX-License-Identifier: Apache-2.0
"""Every rule about a training, and what they say of a run.

What breaks the contract of an operator or of an optimizer is a finding. What may be meant so is a
warning: nobody but the program's author knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.questions.findings import Accusation
from opscope.questions.rows import whole_calls
from opscope.run.keys import key
from opscope.scan.training.carried_gradients import carried_gradients
from opscope.scan.training.clipped_apart import clipped_apart
from opscope.scan.training.eval_mode import eval_mode
from opscope.scan.training.lost_updates import lost_updates
from opscope.scan.training.repeated_data import repeated_data
from opscope.scan.training.replicas_apart import replicas_apart
from opscope.scan.training.story import Note, Spans, Story, read_story
from opscope.scan.training.unread_inputs import unread_inputs
from opscope.scan.training.unset_state import unset_state
from opscope.scan.training.untrained import untrained

if TYPE_CHECKING:
    from opscope.run.protocol import Run

RULES: tuple[Callable[[Story], Iterator[Note]], ...] = (
    lost_updates,
    unset_state,
    carried_gradients,
    repeated_data,
    eval_mode,
    untrained,
    unread_inputs,
    replicas_apart,
    clipped_apart,
)


# Of a recording that leaves calls out only what one call shows by itself can be told.
OF_ONE_CALL = (lost_updates,)
LEAVING_OUT = frozenset({"ops", "skip", "phases", "io", "levels"})


class TrainingReport(msgspec.Struct, frozen=True):
    """Accusations where a contract is broken, and records of warnings for the summary."""

    accusations: tuple[Accusation, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[dict[str, Any], ...] = ()


def training_report(run: Run, spans: Spans) -> TrainingReport:
    """What the rules say; spans are the calls of each (process, rank, step). One step is no
    training, and asks for no text.
    """
    if len({step for _, _, step in spans}) < 2:
        return TrainingReport()
    story = read_story(run, spans)
    rules = RULES if _holds_all(run) else OF_ONE_CALL
    notes = [note for rule in rules for note in rule(story)]
    told = [_told(note, run) for note in notes if not note.finding]
    return TrainingReport(
        accusations=tuple(_accusation(note) for note in notes if note.finding),
        warnings=tuple(dict.fromkeys(_line(record) for record in told)),
        notes=tuple(told),
    )


def _holds_all(run: Run) -> bool:
    """Whether every call of the program has its rows: none chosen away, hidden by compilation, or
    missed.
    """
    missed = any(process.missed or process.failed for process in run.processes)
    return not (missed or run.info.hidden_calls or LEAVING_OUT & set(run.info.config))


def _accusation(note: Note) -> Accusation:
    named = {"parameters": list(note.parameters)} if note.parameters else {}
    return Accusation(
        process=note.process,
        index=note.index,
        kind=note.kind,
        reasons=(note.words,),
        confidence=note.confidence,
        evidence={**named, **note.evidence},
        order=note.order,
        judged=False,
    )


def _told(note: Note, run: Run) -> dict[str, Any]:
    wanted = np.array([key(note.process, note.index)], dtype=np.int64)
    for call, _ in whole_calls(run, wanted, tensors=False).values():
        about_call = {
            "rank": call.rank,
            "step": call.step,
            "call": call.name,
            "op": call.op,
            "source": call.source,
        }
        return {"kind": note.kind, "words": note.words, **about_call, "parameters": note.parameters}
    return {"kind": note.kind, "words": note.words, "parameters": note.parameters}


def _line(record: dict[str, Any]) -> str:
    source = record.get("source")
    return f"{record['words']} ({source})" if source else str(record["words"])
