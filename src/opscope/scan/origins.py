# SPDX-License-Identifier: Apache-2.0
"""Which origins of a flow are accusations, and what is said of each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.judge.arguments import parse_arguments
from opscope.judge.operators import is_overwritten
from opscope.judge.reading import is_read
from opscope.operators.catalogue import family
from opscope.questions.findings import Accusation
from opscope.scan.dataflow import Flow, Origin
from opscope.scan.graphs import Repetition
from opscope.scan.reach import Reach, Reached
from opscope.scan.skipped_steps import Skips

if TYPE_CHECKING:
    from opscope.questions.rows import Node, Row

REACHED, OPEN, HIDDEN = 0, 1, 2
MAX_FOLLOWERS = 16
LATER = frozenset({"backward", "recompute"})


class Context(msgspec.Struct, frozen=True):
    """What bears on how sure one can be: was everything recorded (no torn file, no hidden operator,
    from step 0); what was noted.
    """

    whole: bool
    first_steps: dict[int, int]
    notes: Mapping[int, Mapping[str, Any]] = {}
    repeated: Mapping[tuple[int, int], Repetition] = {}

    def repetition(self, node: Node) -> Repetition | None:
        """What is known of the second execution of the graph that a call belongs to, or is."""
        graph = node.index if node.again is None else node.again
        return self.repeated.get((node.process, graph))

    def note(self, node: Node, kind: str, key: str) -> str | None:
        """What the recorder noted of this kind in a call's process; None where it did not."""
        notes = self.notes.get(node.process, {}).get(kind)
        value = notes.get(key) if isinstance(notes, dict) else None
        return value if isinstance(value, str) else None


class Sorted(msgspec.Struct, frozen=True):
    """Origins that are findings, those that the program guards against, and those of steps that a
    GradScaler skipped on purpose.
    """

    accusations: tuple[Accusation, ...]
    guarded: tuple[Accusation, ...]
    skipped: tuple[tuple[Origin, Reached | None], ...]


def sort_origins(flow: Flow, reach: Reach, skips: Skips, context: Context) -> Sorted:
    """Accusations of a flow; call it after every sink has been noted."""
    accused: dict[int, tuple[Origin, Reached | None]] = {}
    skipped = []
    for origin in flow.origins:
        reached = reach.of(origin)
        if not _accused(origin, reached, flow, reach, context):
            continue
        if skips.excuses(origin, reach.damaged_parameters):
            skipped.append((origin, reached))
        else:
            accused[origin.bit] = (origin, reached)
    primaries = _Primaries(accused.values())
    for origin, reached in list(accused.values()):
        primary = primaries.of(origin)
        if primary is not None and reached is not None and accused[primary.bit][1] is None:
            through = msgspec.structs.replace(reached, path=(primary.node.name, *reached.path))
            accused[primary.bit] = (primary, through)
    followers: dict[int, list[Origin]] = {}
    for origin, _ in accused.values():
        primary = primaries.of(origin)
        if primary is not None:
            followers.setdefault(primary.bit, []).append(origin)
    following = {origin.bit for accusations in followers.values() for origin in accusations}
    accusations = []
    for bit, (origin, reached) in accused.items():
        if bit not in following:
            guarded = reached is None and flow.removed(origin)
            one = _accusation(origin, reached, followers.get(bit, []), context)
            accusations.append(
                msgspec.structs.replace(one, evidence={**one.evidence, "guarded": True})
                if guarded
                else one
            )
    guarded_ones = tuple(one for one in accusations if one.evidence.get("guarded"))
    return Sorted(
        tuple(one for one in accusations if not one.evidence.get("guarded")),
        guarded_ones,
        tuple(skipped),
    )


class _Primaries:
    """Of which other origin an origin is only the consequence.

    The gradient, or the recomputation, of a call that is itself accused, whatever hid its own
    result; and whatever goes wrong in the backward pass of a loss that an origin has reached
    before: its gradients mean nothing.
    """

    def __init__(self, accused: Iterable[tuple[Origin, Reached | None]]) -> None:
        self._calls: dict[tuple[int, int], Origin] = {}
        self._losses: dict[tuple[int, int], Origin] = {}
        for origin, reached in accused:
            node = origin.node
            if node.phase != "backward":
                call = node.index if node.again is None else node.again
                self._calls.setdefault((node.process, call), origin)
            if reached is None or node.phase in LATER:
                continue
            if reached.what == "loss" and reached.step == node.step:
                self._losses.setdefault((node.process, node.step), origin)

    def of(self, origin: Origin) -> Origin | None:
        """The origin that this one follows from, or None."""
        node = origin.node
        if node.phase not in LATER:
            return None
        if node.forward_index is not None and (node.process, node.forward_index) in self._calls:
            partner = self._calls[node.process, node.forward_index]
            return self.of(partner) or partner
        first = self._losses.get((node.process, node.step))
        return first if first is not None and first.node.index < node.index else None


def _accused(
    origin: Origin, reached: Reached | None, flow: Flow, reach: Reach, context: Context
) -> bool:
    unused = _guarded_by_its_own_node(origin) or origin.bit in reach.thrown_away
    if not origin.confirmed or (reached is None and unused):
        return False
    if origin.node.again is not None and not origin.bit & flow.handed:
        return False  # compiled code need not make what its graph makes on the way
    if origin.cause in {"received", "moved"} and flow.only_overwritten(origin.node):
        return False  # memory that its owner had not filled yet
    if origin.cause == "wrapped":
        return reached is not None or not origin.modular
    if origin.cause == "received":
        return not _was_sent(origin, flow, reach)
    if origin.cause in {"moved", "constant"} or _is_placeholder(origin):
        # NaN that marks what is missing is made and guarded on purpose; an accusation needs
        # somebody who computed with it. What a composite operator returned no text of the program
        # holds.
        returned = origin.hidden_by is None and _composite(origin, context) is not None
        return origin.used or reached is not None or returned
    if origin.cause == "arrived":
        return origin.used or reached is not None or origin.hidden_by is not None
    return True


def _composite(origin: Origin, context: Context) -> str | None:
    """The composite operator that put a constant in, where the program itself called one."""
    if origin.cause != "constant":
        return None
    return context.note(origin.node, "composites", f"{origin.node.op} {origin.node.source}")


def _is_placeholder(origin: Origin) -> bool:
    """Whether it is a single NaN in the program's text: torch.tensor(float("nan"))."""
    return (
        origin.cause == "arrived"
        and origin.row is not None
        and origin.row.size == 1
        and family(origin.node.op) == "lift_fresh"
    )


def _guarded_by_its_own_node(origin: Origin) -> bool:
    """Whether the autograd node that made it also put it right, as PyTorch's gradient of a norm
    does at 0.
    """
    node, hider = origin.node, origin.hidden_by
    if hider is None or node.phase != "backward" or node.forward_index is None:
        return False
    return hider.phase == "backward" and hider.forward_index == node.forward_index


def _was_sent(origin: Origin, flow: Flow, reach: Reach) -> bool:
    """Whether what a collective returned was put in by some rank.

    Either another rank handed something unsound to the same kind of collective in the same step, or
    an origin of that step
    got somewhere: buckets of gradients are filled where nobody records, so the way from there into
    the collective is unseen.
    """
    node = origin.node
    if flow.sending[node.step, family(node.op)] - {node.rank}:
        return True
    return node.step in flow.began_elsewhere or any(
        other.node.step == node.step
        and (other.node.rank != node.rank or other.node.index < node.index)
        for other in got_somewhere(flow, reach)
    )


def got_somewhere(flow: Flow, reach: Reach) -> Iterator[Origin]:
    """Origins of these ranks that may be in what a collective of their step carries."""
    for other in flow.origins:
        moved = other.cause == "moved" and flow.only_overwritten(other.node)
        if other.cause != "received" and other.bit in reach.first and not moved:
            yield other


def _accusation(
    origin: Origin, reached: Reached | None, followers: Sequence[Origin], context: Context
) -> Accusation:
    node = origin.node
    unread = _unread(node)
    hider = None if reached is not None else origin.hidden_by or origin.asked_by
    hidden = None if hider is None else hider.name
    evidence: dict[str, Any] = {
        "reached": None if reached is None else reached.what,
        "reached_at": None
        if reached is None
        else {"step": reached.step, "call": reached.call, "tensor_name": reached.tensor_name},
        "path": [] if reached is None else list(reached.path),
        "hidden_by": hidden,
        "arrived": origin.cause in {"arrived", "scalar", "moved"},
    }
    if reached is not None and reached.nan_at is not None:
        evidence["nan_at"] = reached.nan_at
    if unread:
        evidence["unread_inputs"] = unread
    if origin.failed_in is not None:
        evidence["failed_in"] = origin.failed_in.name
    if followers:
        named = [
            {"call": other.node.name, "op": other.node.op, "step": other.node.step}
            for other in followers
        ]
        evidence["followed_by"] = named[:MAX_FOLLOWERS]
    repetition = context.repetition(node)
    if repetition is not None:
        evidence["again"] = {"graph": repetition.graph, "agrees": repetition.agrees}
    inside = _composite(origin, context)
    return Accusation(
        process=node.process,
        index=node.index,
        inside=inside,
        reasons=(
            *_reasons(origin),
            *_returned(origin, context),
            *_repeated(origin, repetition),
            *((f"made inside {inside} by {node.op}",) if inside else ()),
        ),
        confidence=_confidence(origin, context, unread=bool(unread)),
        evidence=evidence,
        order=_order(origin, reached, hidden),
        judged=origin.cause not in {"arrived", "scalar", "moved"},
    )


def _order(origin: Origin, reached: Reached | None, hidden: str | None) -> int:
    if reached is not None or origin.failed_in is not None:
        return REACHED
    return OPEN if hidden is None else HIDDEN


def _unread(node: Node) -> list[str]:
    """Slots of inputs whose values nobody looked at and that could show in the result."""
    return [
        row.slot
        for row in node.inputs
        if not is_read(row) and not is_overwritten(node.op, row.slot)
    ]


def _confidence(origin: Origin, context: Context, *, unread: bool) -> str:
    if origin.cause in {"uninitialised", "received"}:
        return "likely"
    if origin.cause in {"moved", "unseen"} or unread:
        return "suspected"
    if origin.cause in {"arrived", "scalar"}:
        begins = context.first_steps.get(origin.node.process, 0) == 0
        return "proven" if context.whole and begins else "likely"
    repetition = context.repetition(origin.node)
    if repetition is not None and not repetition.agrees:
        return "likely" if origin.node.level == "operator" else "suspected"
    return "likely" if origin.node.level != "operator" else "proven"


REASONS = {
    "scalar": "arrived unsound",
    "moved": "holds what none of its recorded inputs held: it was written where nobody recorded",
    "unseen": "its result was not looked at on return, and held NaN or infinities when it was read",
    "uninitialised": "reads memory that was allocated and never set",
    "mask": "turned a mask of infinities into an unsound value",
    "constant": "a NaN that is a scalar argument",
    "received": "result of a collective whose inputs on this rank are sound",
}


def _reasons(origin: Origin) -> tuple[str, ...]:
    if origin.cause == "arrived":
        return (f"arrived unsound: {_described(origin.row)}",)
    words = REASONS.get(origin.cause)
    return () if words is None else (words,)


def _returned(origin: Origin, context: Context) -> tuple[str, ...]:
    """As which scalar argument the value of an origin came back, in the words of an optimizer where
    it is one of its settings.
    """
    if origin.returned is None:
        return ()
    node, slot = origin.returned
    value = next(
        (value for argument, value in parse_arguments(node.args).scalars if argument == slot),
        math.nan,
    )
    setting = (
        context.note(node, "settings", f"step {node.step}") if node.phase == "optimizer" else None
    )
    words = f"argument {slot.removeprefix('kwargs.')} of {node.name} is {value}"
    if setting is not None:
        words = f"{setting} ({words})"
    return (
        words if origin.cause == "scalar" else f"its value left the tensors and came back: {words}",
    )


MISMATCHED = (
    "executed again operator by operator it is sound: compiled code, or other random numbers, "
    "made it"
)


def _repeated(origin: Origin, repetition: Repetition | None) -> tuple[str, ...]:
    """What the second execution of a compiled graph says."""
    if repetition is None:
        return ()
    if origin.node.level == "graph":
        return (MISMATCHED,)
    same = "the same" if repetition.agrees else "not all of the same"
    return (f"found by executing the compiled graph {repetition.graph} again, which gave {same}",)


def _described(row: Row | None) -> str:
    if row is None:
        return "a tensor that nobody recorded produced"
    held = [
        f"{count} {word}"
        for count, word in ((row.nan, "NaN"), (row.pos_inf, "+Inf"), (row.neg_inf, "-Inf"))
        if count
    ]
    what = " ".join(word for word in (row.role, row.tensor_name) if word) or "a tensor"
    return f"{what} ({row.io} {row.slot}) holds {', '.join(held)} and nobody recorded produced it"
