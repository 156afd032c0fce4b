# SPDX-License-Identifier: Apache-2.0
"""From what the analysis found to findings: rows become slots, bits become words, one finding for
each line and operator.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.judge.arguments import parse_arguments
from opscope.judge.overflow import Status, status_of, words_of
from opscope.kernels.calls import STATISTICS
from opscope.questions.libraries import library_lines
from opscope.questions.rows import whole_calls
from opscope.run.finding import Finding, Forward, Slot
from opscope.run.keys import key, keys_at
from opscope.run.query import columns, rows_of
from opscope.run.vectors import calls_where, codes_of, vectors

if TYPE_CHECKING:
    from opscope.arrays import Bools, Ints
    from opscope.run.protocol import Run
    from opscope.run.schema import Call, Tensor
    from opscope.run.selection import Selection
    from opscope.run.vectors import Vectors

MAX_LISTED = 64

Whole = Mapping[int, "tuple[Call, list[Tensor]]"]


class Accusation(msgspec.Struct, frozen=True, kw_only=True):
    """What the analysis says of one call; evidence is one record of findings' evidence.

    order: reached ones 0, those that nobody hid 1, hidden ones 2. judged: the bits come from the
    call itself.
    forward: of a gradient whose forward call has no row. inside: the composite operator that the
    program called, which has no row. source and module: where in the program, where that is known
    better than of the call.
    """

    process: int
    index: int
    kind: str = "overflow-origin"
    reasons: tuple[str, ...] = ()
    confidence: str = "proven"
    evidence: dict[str, Any] = {}
    order: int = 1
    judged: bool = True
    forward: Forward | None = None
    inside: str | None = None
    source: str | None = None
    module: str | None = None


MISMATCHES = frozenset({"replay-mismatch", "compiled-mismatch"})  # results are wrong, though sound


Ranked = tuple[int, Finding]  # an accusation's order, and what became of it


def build(run: Run, accusations: Sequence[Accusation]) -> tuple[Finding, ...]:
    """Findings of these accusations, most likely culprit first; a line that fails in several steps
    is one finding.
    """
    return tuple(finding for _, finding in ranked(run, accusations))


def ranked(run: Run, accusations: Sequence[Accusation]) -> tuple[Ranked, ...]:
    """The same, each behind its order."""
    calls = whole_calls(run, keys_at((one.process, one.index) for one in accusations))
    forward = {
        (call.process, call.forward_index)
        for call, _ in calls.values()
        if call.forward_index is not None
    }
    owners = {
        (call.process, call.parent)
        for call, _ in calls.values()
        if call.parent is not None and is_conversion(call)
    }
    partners = whole_calls(
        run,
        keys_at((process, index) for process, index in forward | owners if index is not None),
    )
    lines = library_lines(run, (call for call, _ in (*calls.values(), *partners.values())))
    made: list[Ranked] = []
    for one in accusations:
        whole = calls.get(key(one.process, one.index))
        if whole is not None:
            finding = _for_owner(_finding(one, whole[0], whole[1], partners), whole[0], partners)
            line = lines.get((one.process, one.index)) or lines.get(
                (one.process, _or_none(whole[0].forward_index))
            )
            made.append(
                (one.order, finding if line is None else _with_evidence(finding, "library", line))
            )
    once = _once(in_order(_callers_last(_wrong_before_failure(made))))
    return _with_times(run, once, (call for call, _ in calls.values()))


def _with_times(run: Run, made: Sequence[Ranked], calls: Iterable[Call]) -> tuple[Ranked, ...]:
    """Findings that also say which time their line was run, where no step says when it was."""
    keys = {(call.rank, call.name): (call.process, call.index) for call in calls}
    places = [keys.get((finding.rank, finding.call or "")) for _, finding in made[:MAX_LISTED]]
    times = times_of(run, keys_at(call_id for call_id in places if call_id is not None))
    told = list(made)
    for number, call_id in enumerate(places):
        if call_id is not None and call_id in times:
            order, finding = made[number]
            reasons = (*finding.reasons, words_of_time(times[call_id]))
            told[number] = (order, msgspec.structs.replace(finding, reasons=reasons))
    return tuple(told)


def in_order(made: Iterable[Ranked]) -> list[Ranked]:
    """Most likely culprit first."""
    return sorted(made, key=lambda item: (item[0], *_position(item[1]), item[1].rank))


def _or_none(index: int | None) -> int:
    """A call's number that may be missing, as one that no call has."""
    return -1 if index is None else index


def _with_evidence(finding: Finding, name: str, value: str) -> Finding:
    """The finding with one more fact in its first record of evidence."""
    first = {**(finding.evidence[0] if finding.evidence else {}), name: value}
    return msgspec.structs.replace(finding, evidence=(first, *finding.evidence[1:]))


def _position(finding: Finding) -> tuple[int, int]:
    """When a finding's call was made: step and index."""
    return finding.step, finding.index if finding.index is not None else -1


def _wrong_before_failure(made: list[Ranked]) -> list[Ranked]:
    """A kernel that gave wrong results before the first overflow or crash counts as much: what
    fails later may come of it. So does a graph in which that overflow is the compiler's.
    """
    failures = [
        (order, *_position(finding))
        for order, finding in made
        if finding.kind in {"overflow-origin", "crash"}
    ]
    if not failures:
        return made
    first, *position = min(failures)
    return [
        (
            min(order, first)
            if finding.kind in MISMATCHES and [*_position(finding)] < position
            else min(order, first - 1)
            if finding.kind == "compiled-mismatch" and [*_position(finding)] == position
            else order,
            finding,
        )
        for order, finding in made
    ]


def _callers_last(made: list[Ranked]) -> list[Ranked]:
    """A wrong operator whose kernel calls another wrong one comes after it: the fault is the
    other's.
    """
    wrong = {
        finding.op.rpartition(".")[0]
        for _, finding in made
        if finding.kind == "replay-mismatch" and finding.op is not None
    }
    ordered = []
    for order, finding in made:
        inner = [
            name
            for record in finding.evidence
            for name in record.get("inside") or ()
            if name in wrong
        ]
        if finding.kind == "replay-mismatch" and inner:
            words = f"its kernel calls {', '.join(inner)}, which is wrong itself"
            ordered.append(
                (
                    order + 1,
                    msgspec.structs.replace(
                        finding, reasons=(*finding.reasons, words), confidence="suspected"
                    ),
                )
            )
        else:
            ordered.append((order, finding))
    return ordered


def place_of(call: Call) -> dict[str, Any]:
    """The fields of a finding that say at which call it stands."""
    return {
        "rank": call.rank,
        "step": call.step,
        "index": call.index,
        "call": call.name,
        "op": call.op,
        "phase": call.phase,
        "module": call.module,
        "source": call.source,
    }


def _finding(one: Accusation, call: Call, tensors: list[Tensor], partners: Whole) -> Finding:
    inputs = [tensor for tensor in tensors if tensor.io == "input"]
    outputs = [tensor for tensor in tensors if tensor.io == "output"]
    status = _status(call, inputs, outputs) if one.judged else Status()
    partner = (
        None if call.forward_index is None else partners.get(key(call.process, call.forward_index))
    )
    unkept = _unkept_on_a_device(one, inputs)
    evidence = {**one.evidence, "unkept": unkept} if unkept else one.evidence
    better = {"op": one.inside, "module": one.module, "source": one.source}
    return Finding(
        kind=one.kind,
        **(place_of(call) | {name: value for name, value in better.items() if value}),
        forward=one.forward
        if partner is None
        else Forward(call=partner[0].name, op=partner[0].op, source=partner[0].source),
        status=hex(status.bits) if status.bits else None,
        reasons=tuple(dict.fromkeys((*status.reasons, *one.reasons))),
        confidence=one.confidence,
        evidence=(evidence,) if evidence else (),
        inputs=tuple(slot_of(tensor) for tensor in inputs),
        outputs=tuple(slot_of(tensor) for tensor in outputs),
    )


def _unkept_on_a_device(one: Accusation, inputs: Sequence[Tensor]) -> list[str]:
    """Inputs of an origin, by slot, that lay on a device and were too large to have their values
    kept.
    """
    if one.kind != "overflow-origin":
        return []
    return [
        tensor.slot
        for tensor in inputs
        if tensor.value is None
        and tensor.size != 0
        and tensor.device is not None
        and not tensor.device.startswith("cpu")
    ]


def is_conversion(call: Call) -> bool:
    """Whether a back end put the call in to convert the result of another kernel, its parent: no
    line of a program asked for it.
    """
    if call.parent is None or call.op != "Cast" or not call.args:
        return False
    try:
        tree = msgspec.json.decode(call.args)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return False
    named = tree.get("kwargs") if isinstance(tree, dict) else None
    return isinstance(named, dict) and named.get("is_backend_cast") is True


def _for_owner(finding: Finding, call: Call, partners: Whole) -> Finding:
    """The finding with the kernel that a back end's conversion belongs to: its operator, line and
    inputs; outputs are as converted.
    """
    owner = (
        partners.get(key(call.process, call.parent))
        if call.parent is not None and is_conversion(call)
        else None
    )
    if owner is None:
        return finding
    kernel, rows = owner
    types = " to ".join(slot.dtype for slot in (*finding.inputs[:1], *finding.outputs[:1]))
    first = {**(finding.evidence[0] if finding.evidence else {}), "converted_by": call.name}
    words = f"the back end converts its result ({types}) in {call.name}"
    return msgspec.structs.replace(
        finding,
        index=kernel.index,
        call=kernel.name,
        op=kernel.op,
        phase=kernel.phase,
        module=kernel.module,
        source=kernel.source,
        reasons=(*finding.reasons, words),
        evidence=(first, *finding.evidence[1:]),
        inputs=tuple(slot_of(tensor) for tensor in rows if tensor.io == "input"),
    )


def _status(call: Call, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Status:
    """The bits recorded with a call where there are any, else those worked out; reasons of both."""
    own = status_of(call.op, parse_arguments(call.args), inputs, outputs)
    if not call.status:
        return own
    detail = own.reasons if own.bits == call.status else own.reasons[1:]
    return Status(call.status, tuple(dict.fromkeys((*words_of(call.status), *detail))))


def slot_of(tensor: Tensor) -> Slot:
    """A tensor row as a finding shows it: type, shape, and the statistics that are known."""
    stats = {name: value for name in STATISTICS if (value := getattr(tensor, name)) is not None}
    return Slot(
        slot=tensor.slot,
        dtype=tensor.dtype,
        shape=tensor.shape,
        stats=stats,
        tensor_name=tensor.tensor_name,
        role=tensor.role,
    )


def listed(names: Sequence[str], *, most: int = 3) -> str:
    """Some names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


Site = tuple[Any, ...]


def site(order: int, finding: Finding) -> Site:
    """What makes two findings the same fault: the operator and the line; the call's name where no
    line is known.
    """
    operator = (order, finding.rank, finding.kind, finding.op, finding.phase)
    return (
        (*operator, finding.call)
        if finding.source is None
        else (*operator, finding.module, finding.source)
    )


def _once(made: Sequence[Ranked]) -> tuple[Ranked, ...]:
    """One finding for each site; where it comes back, in the same step and in later ones, is
    evidence of the first.
    """
    first: dict[Site, Ranked] = {}
    again: dict[Site, list[Finding]] = {}
    for order, finding in made:
        where = site(order, finding)
        if where in first:
            again.setdefault(where, []).append(finding)
        else:
            first[where] = (order, finding)
    return tuple(
        (order, _repeated(finding, again.get(site, []))) for site, (order, finding) in first.items()
    )


def _repeated(finding: Finding, again: list[Finding]) -> Finding:
    if not again:
        return finding
    steps = sorted({other.step for other in again} - {finding.step})
    same = [other.call for other in again if other.step == finding.step]
    repeated = {
        "times": len(again) + 1,
        "again_in_steps": steps[:MAX_LISTED],
        "also_in_this_step": same[:MAX_LISTED],
    }
    return msgspec.structs.replace(finding, evidence=(*finding.evidence, repeated))


def wants_finding(finding: Finding, selection: Selection | None) -> bool:
    """Whether a finding's call lies in the selection; None wants all."""
    if selection is None:
        return True
    return (
        selection.wants_step(finding.step)
        and selection.wants_rank(finding.rank)
        and (selection.phases is None or finding.phase in selection.phases)
        and selection.wants_op(finding.op or "", finding.call, finding.module)
    )


# Which time a line made a call, where a run knows of no steps: a loop over plain tensors stays
# in step 0.

Time = tuple[int, int]  # the time, from 1 on, and how many there are
_SITE = ("op", "phase", "module", "source")


def times_of(run: Run, keys: Ints) -> Mapping[tuple[int, int], Time]:
    """Of calls (keys.key), which time their line made such a call, by process and index; nothing
    in a run with steps, and of calls that a line made once.
    """
    stepped = any(process.steps for process in run.processes)  # known once it has ended
    if stepped or not len(keys) or _says_steps(run):
        return {}
    names = ("process", "index", *_SITE)
    asked = {
        (process, index): (process, *place)
        for process, index, *place in rows_of(run, "calls", names, keys)
        if place[-1] is not None
    }
    ops, lines = (codes_of({site[at] for site in asked.values()}) for at in (1, -1))

    def there(batch: Vectors) -> Bools:
        return np.isin(batch.hashes("source"), lines) & np.isin(batch.hashes("op"), ops)

    made: dict[tuple[Any, ...], list[int]] = {site: [] for site in asked.values()}
    for process, index, *place in rows_of(run, "calls", names, calls_where(run, "calls", there)):
        site = (process, *place)
        if site in made:
            made[site].append(index)
    for indices in made.values():
        indices.sort()
    return {
        call_id: (bisect_right(made[site], call_id[1]), len(made[site]))
        for call_id, site in asked.items()
        if len(made[site]) > 1
    }


def _says_steps(run: Run) -> bool:
    """Whether anything ends steps, so that the step of a call says when it was."""
    return any((batch["step"] > 0).any() for batch in columns(run, "calls", ("step",))) or any(
        batch.are("phase", "optimizer").any() or batch.are("level", "module").any()
        for batch in vectors(run, "calls")
    )


def words_of_time(time: Time) -> str:
    """`time 31 of 300 that this line does it; the run knows of no steps`."""
    return f"time {time[0]} of {time[1]} that this line does it; the run knows of no steps"
