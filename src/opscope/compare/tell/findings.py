# SPDX-License-Identifier: Apache-2.0
"""From causes and calls without a partner to findings: first cause first, each with both sides, the
error and the reason in words.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.compare.cause.causes import (
    AMPLIFIED,
    ARGUMENT,
    ARRIVED,
    COMPUTED,
    EXTRA,
    MISSING,
    OTHERWISE,
    REWIRED,
    SHAPED,
    UNCOMPARED,
    Cause,
)
from opscope.compare.cause.collectives import Collectives
from opscope.compare.pair.pairing import Pairing
from opscope.compare.pair.tensors import SHAPE
from opscope.compare.pair.unpaired import Block, blocks_of
from opscope.compare.side.records import call_records, tensor_records
from opscope.compare.tell.lines import lines_of
from opscope.compare.verdict.stored_values import bound_of
from opscope.judge.agreement import AGREE
from opscope.operators.catalogue import traits_of
from opscope.questions.compiled_nodes import last_of
from opscope.questions.findings import place_of, slot_of
from opscope.questions.rows import whole_calls
from opscope.run.finding import Finding, Forward, Slot

if TYPE_CHECKING:
    from opscope.compare.side.columns import Side
    from opscope.compare.verdict.stored_values import Measured
    from opscope.run.schema import Call, Tensor

MAX_FINDINGS = 200
MAX_NAMED = 16
WORDS = {
    COMPUTED: "its inputs agree and its output does not",
    ARGUMENT: "was called with other arguments",
    ARRIVED: "reads a tensor that differs and that no recorded call produced",
    REWIRED: "is fed by other tensors",
    EXTRA: "only the target runs this call, and values part at it",
    MISSING: "only golden runs this call, and values part where it is missing",
    SHAPED: "reads a parameter of another shape",
    OTHERWISE: "what goes into these lines agrees, and what comes out of them does not",
    AMPLIFIED: "makes a difference worse than its inputs explain",
}


def findings_of(
    pairing: Pairing, causes: Sequence[Cause], measured: Measured
) -> tuple[Finding, ...]:
    """Findings of a comparison, first cause first, then the differences of structure that changed
    no value.
    """
    blocks = blocks_of(pairing)
    groups = _collapsed(pairing, causes)[:MAX_FINDINGS]
    book = _Book(pairing, groups, blocks)
    origins = [book.origin(cause, count, measured) for cause, count in groups]
    caused = (
        {cause.target for cause in causes if cause.kind == EXTRA},
        {cause.golden for cause in causes if cause.kind in {MISSING, EXTRA}},
    )
    rest = [block for block in blocks if not (block.calls & caused[0 if block.target else 1])]
    rest = [block for block in rest if not block.calls <= pairing.dead[0 if block.target else 1]]
    structural = [book.structural(block) for block in rest[: MAX_FINDINGS - len(origins)]]
    return once([*origins, *structural])


def _collapsed(pairing: Pairing, causes: Sequence[Cause]) -> list[tuple[Cause, list[Cause]]]:
    """Causes in their order, tensors that arrived unlike in one step together: two other models are
    one finding, not hundreds.
    """
    calls = pairing.target.calls
    arrivals: dict[tuple[int, int], list[Cause]] = {}
    for cause in causes:
        if cause.kind == ARRIVED:
            arrivals.setdefault(
                (int(calls.rank[cause.target]), int(calls.step[cause.target])), []
            ).append(cause)
    many = {rank_step for rank_step, arrived in arrivals.items() if len(arrived) > MAX_NAMED}
    groups: list[tuple[Cause, list[Cause]]] = []
    for cause in causes:
        place = (int(calls.rank[cause.target]), int(calls.step[cause.target]))
        if cause.kind == ARRIVED and place in many:
            if arrivals[place][0] is cause:
                groups.append((cause, arrivals[place][1:]))
        else:
            groups.append((cause, []))
    alone = len(groups) < 2 or len({int(calls.rank[cause.target]) for cause, _ in groups}) < 2
    met = np.zeros(len(calls), dtype=np.int64) if alone else Collectives(pairing.target).before
    return sorted(
        groups,
        key=lambda group: (
            int(calls.step[group[0].target]),
            int(met[group[0].target]),
            int(calls.index[group[0].target]),
        ),
    )


class _Book:
    """Records of all calls and tensors that are told, fetched at once."""

    def __init__(
        self, pairing: Pairing, groups: Sequence[tuple[Cause, list[Cause]]], blocks: Sequence[Block]
    ) -> None:
        self.pairing = pairing
        self._blocks = blocks
        self._parted = _first_steps(pairing, groups)
        shown = blocks[:MAX_FINDINGS]
        mine = {cause.target for cause, _ in groups} | {
            block.first for block in shown if block.target
        }
        theirs = {cause.golden for cause, _ in groups} | {
            block.first for block in shown if not block.target
        }
        also = [other for _, others in groups for other in others[:MAX_NAMED]]
        self._sides = (pairing.target, pairing.golden)
        self._calls = [
            self._whole(side, calls)
            for side, calls in zip(self._sides, (mine, theirs), strict=True)
        ]
        forward = [
            self._forward_of(side, calls)
            for side, calls in zip(self._sides, self._calls, strict=True)
        ]
        self._forward = forward
        rows = [cause.row for cause, _ in groups if cause.row >= 0] + [
            other.row for other in also if other.row >= 0
        ]
        self._tensors = self._rows(rows)

    def _whole(self, side: Side, calls: Iterable[int]) -> dict[int, tuple[Call, list[Tensor]]]:
        wanted = sorted({call for call in calls if call >= 0})
        if side.base is None:
            return _at_places(side, wanted)
        keys = (
            side.calls.key[np.array(wanted, dtype=np.int64)]
            if wanted
            else np.empty(0, dtype=np.int64)
        )
        whole = whole_calls(side.run, np.unique(keys))
        return {
            call: whole[key]
            for call, key in zip(wanted, keys.tolist(), strict=True)
            if key in whole
        }

    def _forward_of(
        self, side: Side, calls: dict[int, tuple[Call, list[Tensor]]]
    ) -> dict[tuple[int, int], Call]:
        wanted = {
            (call.process, call.forward_index)
            for call, _ in calls.values()
            if call.forward_index is not None
        }
        keys = {(process << 40) | index for process, index in wanted}
        chosen = (
            np.flatnonzero(np.isin(side.calls.key, np.array(sorted(keys), dtype=np.int64))).tolist()
            if keys
            else []
        )
        return {(call.process, call.index): call for call in call_records(side, chosen).values()}

    def _rows(self, rows: Sequence[int]) -> dict[int, Tensor]:
        """The target's tensor of each row, golden's where the target has none."""
        tensors: dict[int, Tensor] = {}
        table = self.pairing.rows
        for side, column in ((self._sides[0], table.target), (self._sides[1], table.golden)):
            chosen = [row for row in rows if row not in tensors and column[row] >= 0]
            if chosen:
                records = tensor_records(side, column[np.array(chosen, dtype=np.int64)])
                tensors.update({row: records[int(column[row])] for row in chosen})
        return tensors

    # -- findings ----------------------------------------------------------------------------------

    def origin(self, cause: Cause, others: Sequence[Cause], measured: Measured) -> Finding:
        """The finding of one cause; others are further tensors that arrived unlike."""
        side = 1 if cause.kind == MISSING else 0
        call, tensors = self._calls[side][cause.golden if side else cause.target]
        partner = (
            None if side or cause.golden not in self._calls[1] else self._calls[1][cause.golden]
        )
        evidence: dict[str, Any] = {"cause": cause.kind, "side": "golden" if side else "target"}
        if partner is not None:
            evidence["golden_call"], evidence["golden_index"] = partner[0].name, partner[0].index
            evidence["golden_outputs"] = [
                msgspec.to_builtins(slot_of(tensor))
                for tensor in partner[1]
                if tensor.io == "output"
            ]
        evidence |= self._errors(cause, measured)
        evidence |= self._lines(cause)
        evidence |= cause.more
        reasons = [*self._reasons(cause, call, partner)]
        reasons.extend(self._whole_module(cause))
        if call.again is not None:
            reasons.append(self._of_graph(side, call))
        if "bound" in evidence:
            reasons.append(evidence["bound"]["words"])
        if "pattern" in evidence:
            reasons.append(evidence["pattern"])
        if others:
            names = [self._named(other) for other in others[:MAX_NAMED]]
            evidence["also"] = names
            reasons.append(
                f"so do {len(others)} more tensors that no recorded call produced: other "
                "weights, another seed or other data"
            )
        return self._finding(
            call,
            tensors,
            side,
            kind="divergence-origin",
            reasons=reasons,
            evidence=evidence,
            confidence=_confidence(cause, call, evidence),
            place={
                fact: known
                for fact in ("source", "module")
                if (known := last_of(cause.more.get("nodes", ()), fact)) is not None
            },
        )

    def _lines(self, cause: Cause) -> dict[str, Any]:
        """The lines of either side's region, as FILE:FIRST-LAST."""
        lines = {}
        for word, side, calls in zip(("target", "golden"), self._sides, cause.region, strict=True):
            if calls:
                lines[f"{word}_lines"] = lines_of(side, calls)
        return lines

    def structural(self, block: Block) -> Finding:
        """The finding of calls that only one side has and that changed no value."""
        side = 0 if block.target else 1
        call, tensors = self._calls[side][block.first]
        where = "the target" if block.target else "golden"
        parted = self._parted.get(call.rank, call.step + 1) <= call.step
        reasons = [
            f"only {where} runs {_extent(block)}"
            + ("" if parted else "; the values around it agree")
        ]
        evidence = {
            "side": "target" if block.target else "golden",
            "calls": len(block.calls),
            "steps": sorted(block.steps)[:MAX_NAMED],
        }
        return self._finding(
            call,
            tensors,
            side,
            kind="structural-difference",
            reasons=reasons,
            evidence=evidence,
            confidence="proven",
        )

    def _whole_module(self, cause: Cause) -> Iterator[str]:
        """That the call is one of a module of which the other side runs nothing."""
        if cause.kind not in {EXTRA, MISSING}:
            return
        target = cause.kind == EXTRA
        for block in self._blocks:
            if (
                block.module
                and block.target == target
                and (cause.target if target else cause.golden) in block.calls
            ):
                other = "golden" if target else "the target"
                yield f"{other} runs nothing of module {block.module}"

    def _finding(self, call: Call, tensors: Sequence[Tensor], side: int, **rest: Any) -> Finding:
        forward = (
            self._forward[side].get((call.process, call.forward_index))
            if call.forward_index is not None
            else None
        )
        return Finding(
            kind=rest["kind"],
            **{**place_of(call), **rest.get("place", {})},
            forward=None
            if forward is None
            else Forward(call=forward.name, op=forward.op, source=forward.source),
            reasons=tuple(rest["reasons"]),
            confidence=rest["confidence"],
            evidence=(rest["evidence"],),
            inputs=_slots(tensors, "input"),
            outputs=_slots(tensors, "output"),
        )

    def _errors(self, cause: Cause, measured: Measured) -> dict[str, Any]:
        """The worst output of the call, the input where the cause lies, and the metrics of either
        where values were there.
        """
        rows = self.pairing.rows
        own = (
            np.flatnonzero(rows.target_call == cause.target)
            if cause.kind != MISSING
            else np.empty(0, dtype=np.int64)
        )
        outputs = own[rows.output[own] & ~np.isnan(rows.error[own])]
        fits = rows.status[outputs] != SHAPE
        evidence: dict[str, Any] = {}
        if len(outputs) and not fits.any():
            evidence["other_shape"] = True
        outputs = outputs[fits]
        if len(outputs):
            worst = int(outputs[np.argmax(rows.error[outputs])])
            evidence["error"] = float(rows.error[worst])
            if not math.isnan(rows.allowed[worst]):
                evidence["allowed"] = float(rows.allowed[worst])
            if worst in measured.pairs:
                evidence["metrics"] = msgspec.to_builtins(measured.pairs[worst])
                if cause.kind == COMPUTED:
                    evidence |= self._bound(cause, worst, measured)
            from opscope.compare.tell.patterns import pattern_of

            pattern = pattern_of(self.pairing, cause.row if cause.kind == ARRIVED else worst)
            if pattern is not None:
                evidence["pattern"] = pattern
        if cause.row >= 0:
            tensor = self._tensors.get(cause.row)
            evidence["tensor"] = (
                None
                if tensor is None
                else {
                    "io": tensor.io,
                    "slot": tensor.slot,
                    "tensor_name": self._name_of(cause.row),
                    "role": tensor.role,
                }
            )
            if not math.isnan(rows.error[cause.row]):
                evidence["input_error"] = float(rows.error[cause.row])
        return evidence

    def _bound(self, cause: Cause, row: int, measured: Measured) -> dict[str, Any]:
        """What error analysis allows the worst output of a call whose inputs agree."""
        golden = self._sides[1]
        dtype = golden.words.get(int(golden.tensors.dtype[self.pairing.rows.golden[row]]), "")
        bound = bound_of(*self._calls[0][cause.target], measured.pairs[row], dtype)
        return {} if bound is None else {"bound": msgspec.to_builtins(bound)}

    def _reasons(
        self, cause: Cause, call: Call, partner: tuple[Call, list[Tensor]] | None
    ) -> Iterable[str]:
        if cause.words:
            yield from cause.words
            if cause.kind in {EXTRA, UNCOMPARED}:
                return
        if cause.kind == ARRIVED:
            yield self._arrived(cause)
            return
        if cause.kind == SHAPED:
            yield self._shaped(cause)
            return
        if cause.kind in {COMPUTED, AMPLIFIED, ARGUMENT} and traits_of(call.op).random:
            yield (
                "it draws random numbers: the runs were in other states of the generator, or not "
                "seeded alike"
            )
        if cause.kind == EXTRA and partner is not None:
            yield f"the target runs it where golden runs {partner[0].op} ({partner[0].name})"
            return
        if cause.kind == COMPUTED and self._unread(cause):
            yield "its output differs; what it reads was not recorded on both sides"
            return
        if (
            cause.kind in {COMPUTED, AMPLIFIED, OTHERWISE}
            and partner is not None
            and partner[0].op != call.op
            and not self.pairing.by_wholes  # partners by where they are, not by what they compute
        ):
            yield f"golden runs {partner[0].op} in its place"
        if cause.kind != OTHERWISE or any(cause.region):
            yield WORDS[cause.kind]

    def _of_graph(self, side: int, call: Call) -> str:
        calls = self._sides[side].calls
        graph = np.flatnonzero((calls.process == call.process) & (calls.index == call.again))
        names = [self._sides[side].operator(each) for each in graph.tolist()]
        return f"it is an operator of {''.join(names) or 'a graph'}, which was executed again"

    def _unread(self, cause: Cause) -> bool:
        """Whether nothing that a call reads was compared, in dumps that may leave inputs out."""
        if all(side.run.info.coverage.inputs for side in self._sides):
            return False
        rows = self.pairing.rows
        own = (rows.target_call == cause.target) & ~rows.output
        return not np.any(own & (rows.target >= 0) & (rows.golden >= 0))

    def _arrived(self, cause: Cause) -> str:
        tensor = self._tensors.get(cause.row)
        name = self._name_of(cause.row)
        role = (tensor.role if tensor is not None else None) or ("parameter" if name else "tensor")
        slot = tensor.slot if tensor is not None else "?"
        return (
            f"{role} {name + ' ' if name else ''}(input {slot}) differs, and no recorded call "
            "produced it"
        )

    def _shaped(self, cause: Cause) -> str:
        tensor, golden_row = self._tensors.get(cause.row), int(self.pairing.rows.golden[cause.row])
        other = tensor_records(self.pairing.golden, np.array([golden_row], dtype=np.int64)).get(
            golden_row
        )
        sizes = [
            list(side.shape) if side is not None and side.shape is not None else "unknown"
            for side in (tensor, other)
        ]
        return (
            f"parameter {self._name_of(cause.row) or f'at input {tensor.slot}' if tensor else ''} "
            f"is {sizes[0]}, golden has {sizes[1]}"
        )

    def _named(self, cause: Cause) -> str:
        return (
            self._name_of(cause.row)
            or f"call #{int(self.pairing.target.calls.index[cause.target])}"
        )

    def _name_of(self, row: int) -> str | None:
        """Name of a tensor, also where another row of the same content bears it."""
        tensor = self._tensors.get(row)
        if tensor is None or tensor.tensor_name is not None:
            return None if tensor is None else tensor.tensor_name
        target_row = int(self.pairing.rows.target[row])
        side, flow = self.pairing.target, self.pairing.flows[0]
        if target_row < 0 or not flow.state[target_row]:
            return None
        same = np.flatnonzero((flow.state == flow.state[target_row]) & (side.tensors.named != 0))
        if not len(same):
            return None
        return tensor_records(side, np.array([same[0]], dtype=np.int64))[int(same[0])].tensor_name


def _at_places(side: Side, calls: Sequence[int]) -> dict[int, tuple[Call, list[Tensor]]]:
    """Calls by their places with all their tensors; reads only the batches in which these lie."""
    first, last = (np.searchsorted(side.tensors.call, calls, side=end) for end in ("left", "right"))
    spans = [range(start, stop) for start, stop in zip(first.tolist(), last.tolist(), strict=True)]
    records = tensor_records(
        side, np.array([row for span in spans for row in span], dtype=np.int64)
    )
    known = call_records(side, calls)
    return {
        call: (known[call], [records[row] for row in span])
        for call, span in zip(calls, spans, strict=True)
    }


def _slots(tensors: Sequence[Tensor], io: str) -> tuple[Slot, ...]:
    return tuple(slot_of(tensor) for tensor in tensors if tensor.io == io)


def _confidence(cause: Cause, call: Call, evidence: dict[str, Any]) -> str:
    if not cause.sure or evidence.get("bound", {}).get("verdict") == AGREE:
        return "suspected"
    return (
        "proven"
        if call.level == "operator" and cause.kind not in {REWIRED, AMPLIFIED, OTHERWISE}
        else "likely"
    )


def once(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """One finding for each operator and place; where it comes back, in later steps or for other
    parameters, is evidence of the first.
    """
    first: dict[tuple[Any, ...], Finding] = {}
    steps: dict[tuple[Any, ...], list[int]] = {}
    for finding in findings:
        lonely = finding.evidence[0].get("cause") in {EXTRA, MISSING}
        tensor = None if lonely else (finding.evidence[0].get("tensor") or {}).get("tensor_name")
        module = None if lonely and finding.phase != "forward" else finding.module
        site = (
            finding.rank,
            finding.kind,
            finding.op,
            finding.phase,
            module,
            finding.source,
            tensor,
            finding.reasons,
        )
        if site in first:
            steps.setdefault(site, []).append(finding.step)
        else:
            first[site] = finding
    return tuple(_again(finding, steps.get(site, [])) for site, finding in first.items())


def _again(finding: Finding, steps: list[int]) -> Finding:
    if not steps:
        return finding
    again = {"times": len(steps) + 1, "again_in_steps": sorted(set(steps) - {finding.step})[:64]}
    return msgspec.structs.replace(finding, evidence=(*finding.evidence, again))


def _first_steps(pairing: Pairing, groups: Sequence[tuple[Cause, list[Cause]]]) -> dict[int, int]:
    """For each rank the step of its first cause."""
    steps: dict[int, int] = {}
    for cause, _ in groups:
        calls = pairing.target.calls
        rank, step = int(calls.rank[cause.target]), int(calls.step[cause.target])
        if cause.kind == MISSING:
            step = min(step, int(pairing.golden.calls.step[cause.golden]))
        steps[rank] = min(steps.get(rank, step), step)
    return steps


def _extent(block: Block) -> str:
    """What is in a block, and how often it is found, in words."""
    if block.places > 1 or block.module:
        where = f"in module {block.module}" if block.module else f"in {block.places} places"
        return f"{len(block.calls)} calls {where}" + (
            f", in {len(block.steps)} steps" if len(block.steps) > 1 else ""
        )
    more = "" if block.length == 1 else f" and {block.length - 1} more after it"
    times = len(block.calls) // block.length
    often = (
        ""
        if times == 1
        else f", in {len(block.steps)} steps"
        if len(block.steps) > 1
        else f", {times} times"
    )
    return f"this call{more}{often}"
