# SPDX-License-Identifier: Apache-2.0
"""What was wrong with a recorded call: the signature that a repro must show again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.repro.arguments import SLOT
from opscope.repro.case import Failure, RaisedError, Witness
from opscope.run.dtypes import find_dtype
from opscope.run.keys import keys_at
from opscope.run.query import records_of
from opscope.run.schema import Call, Tensor

if TYPE_CHECKING:
    from opscope.run.protocol import Run

WRITTEN = "written:"  # before the slot of an argument in a judgement
LONGEST = 128  # characters of a number
STOPPED = frozenset({2, 9, 15})
# What judgements say of memory (substitute/examine.py).
MEMORY = re.compile(r"only reads by its schema|shares memory with an argument")
# What the extremes of results alone suggest; a trusted kernel that gave other results in the same
# types knows better.
SUGGESTED = frozenset({"none", "saturation", "integer-overflow"})
CLASSES = ("nan", "pos_inf", "neg_inf")
WORDS = {"nan": "NaN", "pos_inf": "inf", "neg_inf": "-inf"}
INTEGER_BITS = (
    0x10 | 0x80 | 0x8
)  # overflow, negative to unsigned, negating the most negative (architecture.md section 5)
RAISED = re.compile(r"([A-Za-z_][\w.]*)(?::\s*(.*))?", re.ASCII | re.DOTALL)
# Types narrow enough that an output exactly at their largest value can mean that a larger result
# was cut off.
SATURATING = {
    "float16": 65504.0,
    "float8_e4m3fn": 448.0,
    "float8_e5m2": 57344.0,
    "float8_e4m3fnuz": 240.0,
    "float8_e5m2fnuz": 57344.0,
}


def failure_of(
    call: Call, inputs: Sequence[Tensor], outputs: Sequence[Tensor], scalars: Iterable[float]
) -> Failure:
    """The failure a call's rows show, the gravest first: an exception or a death, non-finite
    outputs, overflow bits, saturation.

    Outputs that hold only -inf count only when no other output is unsound: they are masks more
    often than failures.
    """
    if call.error == "unfinished":
        return Failure(kind="crash")
    if call.error:
        classes_of = RAISED.match(call.error)
        kind, text = (
            (classes_of[1].rpartition(".")[2], classes_of[2] or "")
            if classes_of
            else ("Exception", call.error)
        )
        return Failure(kind="exception", error=RaisedError(kind, text))
    status = None if not call.status else hex(call.status)
    seen = {row.slot: tuple(name for name in CLASSES if getattr(row, name)) for row in outputs}
    unsound = {
        slot: classes_of
        for slot, classes_of in seen.items()
        if {"nan", "pos_inf"} & set(classes_of)
    }
    unsound = unsound or {slot: classes_of for slot, classes_of in seen.items() if classes_of}
    if unsound:
        return Failure(kind="nonfinite", outputs=unsound, status=status)
    if call.status and call.status & INTEGER_BITS:
        return Failure(kind="integer-overflow", status=status)
    saturated: dict[str, tuple[str, ...]] = {
        row.slot: () for row in outputs if _saturated(row, inputs, tuple(scalars))
    }
    if saturated:
        return Failure(kind="saturation", outputs=saturated, status=status)
    return Failure(kind="none", status=status)


def told_by_run(run: Run, call: Call, failure: Failure) -> Failure:
    """The failure with what the run says of the call elsewhere: checks that found it wrong, and how
    its process ended.

    A call in which a process stood when it was stopped from outside (SIGINT, SIGTERM, SIGKILL) is
    taken for one that hangs.
    """
    if failure.kind == "crash":
        ending = next(
            (process.signal for process in run.processes if process.process == call.process), None
        )
        return Failure(kind="hang") if ending in STOPPED else failure
    if failure.kind not in SUGGESTED:
        return failure
    judged = records_of(run, "judgements", keys_at([(call.process, call.index)]))
    rows = [row for row in judged if row.kind == "replay-mismatch"]
    samples = [_sample(row.sample) for row in rows]
    if not samples:
        return failure
    if all(MEMORY.search(str(sample.get("reason"))) for sample in samples):
        return Failure(kind="memory", status=failure.status)
    slots = [slot for sample in samples if (slot := _slot(sample)) is not None]
    return Failure(
        kind="mismatch",
        outputs=dict.fromkeys(slots, ()),
        status=failure.status,
        witnesses=tuple(
            witness
            for row, sample in zip(rows, samples, strict=True)
            if (witness := witness_of(sample, row.tolerance)) is not None
        ),
    )


def witness_of(sample: dict[str, Any], tolerance: float | None) -> Witness | None:
    """The element that a check tells of; None where there is none, or it is of a formula."""
    slot, element = _slot(sample), sample.get("worst")
    recorded, true = sample.get("got"), sample.get("expected")
    if slot is None or sample.get("gradient") or not isinstance(element, list):
        return None
    if not (_number(recorded) and _number(true)):
        return None
    if not all(type(index) is int and index >= 0 for index in element):
        return None
    return Witness(
        slot=slot,
        element=tuple(element),
        recorded=str(recorded),
        true=str(true),
        tolerance=tolerance,
    )


def _number(text: object) -> bool:
    try:
        return isinstance(text, str) and len(text) < LONGEST and complex(text) is not None
    except ValueError:
        return False


def _slot(sample: dict[str, Any]) -> str | None:
    """The slot of the output that a judgement tells of; an argument that is written has its own."""
    slot = sample.get("output")
    name = slot.removeprefix(WRITTEN) if isinstance(slot, str) else ""
    return name if SLOT.fullmatch(name) else None


def _sample(text: str | None) -> dict[str, Any]:
    """What a judgement says of one output that a check found wrong."""
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}


def _saturated(row: Tensor, inputs: Sequence[Tensor], scalars: Sequence[float]) -> bool:
    limit = SATURATING.get(row.dtype)
    if limit is None or row.max is None or row.min is None or max(row.max, -row.min) != limit:
        return False
    reached = [
        abs(end)
        for each in inputs
        for end in (each.min, each.max)
        if end is not None and _floating(each.dtype)
    ]
    return limit not in reached and limit not in map(abs, scalars)


def _floating(name: str) -> bool:
    dtype = find_dtype(name)
    return dtype is not None and dtype.kind == "float"


def arrived_unsound(inputs: Iterable[Tensor]) -> tuple[str, ...]:
    """Slots of inputs that held NaN or +inf already."""
    return tuple(row.slot for row in inputs if row.nan or row.pos_inf)


def failure_words(failure: Failure) -> str:
    """The failure in a few words, without text from the run except the exception's class."""
    if failure.kind == "nonfinite":
        told = (
            f"{' and '.join(WORDS[name] for name in names)} in output {slot}"
            for slot, names in failure.outputs.items()
        )
        return ", ".join(told)
    if failure.kind == "exception" and failure.error is not None:
        return f"raises {failure.error.type}"
    return {
        "integer-overflow": "integer overflow",
        "saturation": "an output at the largest value of its type",
        "mismatch": "an output is silently wrong",
        "memory": "an argument was changed that is only read, or a result lies in other memory "
        "than it should",
        "crash": "the process ended inside the call",
        "hang": "the call does not return",
    }.get(failure.kind, "nothing wrong was recorded")
