# SPDX-License-Identifier: Apache-2.0
"""Follows what is not finite through a run: who produced it, who read it, which call it began with.

Calls are taken in order; the rule for one call is judge.soundness.judge. The state of a tensor is
found by its version; where no output row carries an input's version (a write through a view, a
write nobody saw) by the latest earlier output on the same storage that held the same kind of value.
What nobody produced has arrived. Assumptions: docs/scan.md.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from opscope.judge.arguments import Arguments, parse_arguments
from opscope.judge.operators import (
    HANDS_ON,
    element_of,
    is_collective,
    is_overwritten,
    is_per_element,
    removes,
)
from opscope.judge.reading import is_finite, is_read
from opscope.judge.soundness import FINITE, Condition, Held, Judgement, arrived, judge
from opscope.judge.wrapping import (
    Wrapped,
    follows,
    is_finite_unwrapped,
    reduces,
    scatters,
    unwrapped,
    wraps_of,
)
from opscope.operators.catalogue import family, traits_of, works_in_place
from opscope.questions.rows import Row
from opscope.run.dtypes import find_dtype
from opscope.scan.graphs import is_handing

if TYPE_CHECKING:
    from opscope.questions.rows import Node

Identity = tuple[int, str, object]
KINDS = ("nan", "pos_inf", "neg_inf")
OPPOSITE = {
    "nan": "nan",
    "pos_inf": "neg_inf",
    "neg_inf": "pos_inf",
}  # an optimizer takes its learning rate negated
# What no call computed: data with gaps is given once, and read in many steps.
GIVEN = frozenset({"arrived", "moved", "constant"})
MAX_ORIGINS = 4096  # told apart; later ones count as the last


class Origin(msgspec.Struct):
    """Where something that is not finite began.

    cause: computed, mask, uninitialised, constant, moved (judge.soundness), arrived (nobody
    recorded produced it), scalar (the same of a scalar argument), wrapped (integers did), received
    (by a collective, from sound values of this rank) or unseen (by a call of sound inputs whose
    result was read later). confirmed: it is an accusation; pending ones are not until NaN or +Inf
    derives from them or they get somewhere. used: some call computed with it, beyond moving and
    guarding. hidden_by: the first call that left no trace of it; guarded: every such call did so on
    purpose, and what the program computed in its own step; asked_by: the first that only asked what
    it is; failed_in: the first that raised an error on it. returned: the call and slot in which its
    value, once it had left the tensors (`.item()`), came back as a scalar argument.
    modular: integers that wrapped as hashes, checksums and random numbers are meant to;
    wraps_again: so did what was computed of them.
    """

    bit: int
    node: Node
    cause: str
    row: Row | None = None
    confirmed: bool = False
    used: bool = False
    hidden_by: Node | None = None
    guarded: bool = True
    asked_by: Node | None = None
    failed_in: Node | None = None
    returned: tuple[Node, str] | None = None
    wraps_again: bool = False
    modular: bool = False

    def hidden(self, by: Node, *, on_purpose: bool) -> None:
        """A call left no trace of it."""
        self.hidden_by = self.hidden_by or by
        in_time = by.step == self.node.step or self.cause in GIVEN
        self.guarded = self.guarded and on_purpose and in_time


class Mark(msgspec.Struct, frozen=True, gc=False):
    """A tensor row and the condition of its state at that call."""

    node: Node
    row: Row
    condition: Condition


class Flow:
    """Conditions of all tensor states of the given calls, which must come in order within each
    process. edges: whether both what calls read and what they wrote was recorded; else what spreads
    is no second cause.
    """

    def __init__(self, nodes: Iterable[Node], *, edges: bool = True) -> None:
        self._edges = edges
        self.origins: list[Origin] = []
        self.untold = 0
        self.written: list[Mark] = []
        self.read: list[Mark] = []
        self.produced: dict[Identity, Mark] = {}
        self.readers: dict[Identity, list[Node]] = defaultdict(list)
        self._read_whole: set[Identity | None] = (
            set()
        )  # parts, where somebody read what they are of
        self.unsound: set[int] = set()
        self.sending: dict[tuple[int, str], set[int]] = defaultdict(set)
        self.began_elsewhere: frozenset[int] = frozenset()  # steps, of ranks that are not here
        self._conditions: dict[Identity, Condition] = {}
        self._storages: dict[tuple[int, int], list[Mark]] = defaultdict(list)
        self._names: dict[tuple[int, str], Mark] = {}
        self._last: dict[int, Mark] = {}
        self._unseen: dict[Identity, Node] = {}
        self._overwritten: set[Identity] = set()
        self.wrapping: set[int] = set()
        self._wrapped: dict[Identity, Wrapped] = {}
        self._left: dict[tuple[int, str], Condition] = {}
        self._handed_on: dict[tuple[int, str, str, str], Condition] = {}
        self.handed = 0  # origins in second executions that are in the results of their graphs
        for node in nodes:
            self._take(node)

    @property
    def mark(self) -> int:
        """Bit of the next origin."""
        return 1 << min(len(self.origins), MAX_ORIGINS)

    def add(self, origin: Origin) -> None:
        """Keep an origin; of those beyond MAX_ORIGINS only the first, which stands for all."""
        if len(self.origins) <= MAX_ORIGINS:
            self.origins.append(origin)
        else:
            self.untold += 1

    # -- one call ----------------------------------------------------------------------------------

    def _take(self, node: Node) -> None:
        arguments = parse_arguments(node.args)
        if not is_per_element(node.op):
            self._judge(node, node.inputs, node.outputs, arguments)
            return
        shared = [row for row in node.inputs if element_of(row.slot) is None]
        groups: dict[int, tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
        for row in node.inputs:
            element = element_of(row.slot)
            if element is not None:
                groups[element][0].append(row)
        for row in node.outputs:
            element = element_of(row.slot)
            groups[int(row.slot) if element is None and row.slot.isdigit() else element or 0][
                1
            ].append(row)
        for element, (inputs, outputs) in groups.items():
            self._judge(node, [*inputs, *shared], outputs, arguments.element(element))

    def _judge(
        self, node: Node, inputs: Sequence[Row], outputs: Sequence[Row], arguments: Arguments
    ) -> None:
        if traits_of(node.op).brings:
            # brought in from outside when the loader had time to: it arrives where it is first read
            return
        inputs = inputs or self._assumed(outputs)
        held = self._unwrapped(node, inputs, outputs, arguments)
        self._note_leaving(node, held)
        given_scalars = (
            [] if all(is_finite(row) for row in outputs) else self._scalars(node, arguments)
        )
        mark = self.mark
        judged = judge(
            node.op,
            arguments,
            [*held, *given_scalars],
            outputs,
            mark=mark,
            backward=node.phase == "backward",
        )
        judged = self._as_before(node, outputs, judged)
        if judged.kind in {"origin", "pending"}:
            received = is_collective(node.op, node.phase)
            cause = "received" if received else judged.cause or "computed"
            maker = self._awaited(inputs) if family(node.op) in HANDS_ON else None
            self.add(Origin(mark, maker or node, cause, confirmed=judged.kind == "origin"))
        self._confirm(judged.confirmed)
        if any(each.condition.taint for each in (*held, *given_scalars)):
            self.unsound.add(id(node))
        given = 0
        for one in given_scalars:
            given |= one.condition.taint
        for one, row in zip(held, inputs, strict=True):
            if not is_overwritten(node.op, row.slot):
                given |= one.condition.taint | one.condition.pending
            elif self._replaces_a_part(node, row):
                for origin in self.of(one.condition.taint):
                    origin.hidden(node, on_purpose=True)
        self._note_reading(node, given, hides=judged.kind == "hider")
        self._follow_wrapped(node, inputs, outputs, arguments)
        for row, condition in zip(outputs, judged.outputs, strict=True):
            if condition != FINITE:
                self._note_output(Mark(node, row, condition))
            elif not is_read(row):
                self._note_unseen(node, row)

    def _assumed(self, outputs: Sequence[Row]) -> list[Row]:
        """What a call may have read that makes something which is not finite, where that was not
        recorded: what a view names again, else the last that was not finite before.
        """
        if self._edges:
            return []
        unsound = [row for row in outputs if not is_finite(row)]
        named = [row for row in unsound if identity_of(row) in self._conditions]
        last = self._last.get(unsound[0].process) if unsound else None
        return named or ([] if last is None else [last.row])

    def _as_before(self, node: Node, outputs: Sequence[Row], judged: Judgement) -> Judgement:
        """The judgement of a compiled graph that was not executed again: where only infinities
        came of it that were masks when it was executed again before, they are masks.
        """
        if node.level != "graph":
            return judged
        places = [(node.process, node.op, node.phase, row.slot) for row in outputs]
        if is_handing(node):
            self._handed_on.update(zip(places, judged.outputs, strict=True))
            return judged
        known = [
            FINITE if is_finite(row) else self._handed_on.get(output)
            for output, row in zip(places, outputs, strict=True)
        ]
        if judged.kind != "pending" or any(
            condition is None or condition.taint or condition.pending for condition in known
        ):
            return judged
        return Judgement("mask", tuple(condition for condition in known if condition is not None))

    def _note_leaving(self, node: Node, held: Sequence[Held]) -> None:
        """Remember whose value leaves the tensors, so that it is known again when it comes back as
        a scalar argument.
        """
        if not traits_of(node.op).leaves:
            return
        for each in held:
            bits = each.condition.taint | each.condition.pending
            for kind in KINDS if bits else ():
                if getattr(each.reading, kind):
                    self._left[node.process, kind] = Condition(taint=bits)

    def _scalars(self, node: Node, arguments: Arguments) -> list[Held]:
        """Scalar arguments that came from somewhere: not finite, and computed with. What is only
        placed (a mask, a limit) is not.
        """
        known = traits_of(node.op)
        if (known.places and not known.pointwise) or known.order:
            return []
        scalars_held = []
        for slot, value in arguments.scalars:
            kind = (
                "nan"
                if math.isnan(value)
                else "pos_inf"
                if value == math.inf
                else "neg_inf"
                if value == -math.inf
                else None
            )
            condition = (
                None
                if kind is None
                else self._left.get((node.process, kind))
                or self._left.get((node.process, OPPOSITE[kind]))
            )
            if condition is not None:
                self._note_return(node, slot, condition)
            elif kind == "nan":
                condition = self._left[node.process, kind] = Condition(taint=self.mark)
                self.add(
                    Origin(
                        self.mark, node, "scalar", confirmed=True, used=True, returned=(node, slot)
                    )
                )
            if condition is not None and kind is not None:
                row = Row(
                    node.process,
                    node.index,
                    "input",
                    slot,
                    "float64",
                    size=1,
                    nan=0,
                    pos_inf=0,
                    neg_inf=0,
                )
                setattr(row, kind, 1)
                scalars_held.append(Held(row, condition))
        return scalars_held

    def _note_return(self, node: Node, slot: str, condition: Condition) -> None:
        for origin in self.of(condition.taint):
            origin.returned = origin.returned or (node, slot)
            origin.confirmed = True

    def _confirm(self, bits: int) -> None:
        for origin in self.of(bits):
            origin.confirmed = True

    def of(self, bits: int) -> list[Origin]:
        """Origins of these bits."""
        origins_meant = []
        while bits:
            low = bits & -bits
            origins_meant.append(self.origins[low.bit_length() - 1])
            bits ^= low
        return origins_meant

    def _note_reading(self, node: Node, given: int, *, hides: bool) -> None:
        if not given:
            return
        if is_handing(node):
            self.handed |= given
        known = traits_of(node.op)
        hider = self._hider(node) if hides else node
        # a graph that leaves no trace may hold a guard: nobody saw what it does
        guards = hider.level == "graph" or removes(
            hider.op, masked=any(row.dtype == "bool" for row in hider.inputs)
        )
        computes = not (known.moves or known.guards or known.silent)
        computes = computes and not (hides and node.level == "graph")
        if is_collective(node.op, node.phase):
            self.sending[node.step, family(node.op)].add(node.rank)
        for origin in self.of(given):
            origin.used = origin.used or computes
            origin.failed_in = origin.failed_in or (node if node.error else None)
            if hides and known.predicate:
                origin.asked_by = origin.asked_by or node
            elif hides and not _is_gradient_of(hider, origin.node):
                origin.hidden(hider, on_purpose=guards)

    def _hider(self, node: Node) -> Node:
        """Which call hid what this one leaves no trace of.

        No conversion between floats does; behind one whose operand nobody read it is the call that
        made that, as a kernel of float16 on MindSpore's CPU, whose own output cannot be dumped.
        """
        while (
            traits_of(node.op).cast
            and node.inputs
            and not is_read(node.inputs[0])
            and _among_floats(node)
        ):
            identity = identity_of(node.inputs[0])
            made = None if identity is None else self.produced.get(identity)
            if made is None or made.node is node:
                return node
            node = made.node
        return node

    def _note_output(self, mark: Mark) -> None:
        row = mark.row
        self.written.append(mark)
        identity = identity_of(row)
        if identity is not None:
            self._conditions[identity] = mark.condition
            self.produced.setdefault(
                identity, mark
            )  # a view that covers the same elements has its base's version
        if row.storage is not None:
            self._storages[row.process, row.storage].append(mark)
        if row.tensor_name is not None:
            self._names[row.process, row.tensor_name] = mark
        if mark.condition.taint:
            self._last[row.process] = mark

    def _note_unseen(self, node: Node, row: Row) -> None:
        """An output that was not looked at on return, of sound inputs: if it turns out unsound,
        this is where it began.
        """
        if family(node.op) not in HANDS_ON:
            self._unseen.update(dict.fromkeys(self._keys(row), node))

    def _awaited(self, rows: Sequence[Row]) -> Node | None:
        """The collective whose result a call waited for."""
        return next(
            (self._unseen[key] for row in rows for key in self._keys(row) if key in self._unseen),
            None,
        )

    @staticmethod
    def _keys(row: Row) -> list[Identity]:
        keys: list[Identity | None] = [
            identity_of(row),
            None if row.storage is None else (row.process, "storage", row.storage),
        ]
        return [key for key in keys if key is not None]

    @cached_property
    def left_open(self) -> int:
        """Bits of the origins of results that nobody read: what became of those is not known."""
        bits = 0
        for mark in self.written:
            identity = identity_of(mark.row)
            if (
                not traits_of(mark.node.op).view
                and not _picked_by_mask(mark)
                and identity is not None
                and not self.readers.get(identity)
                and identity not in self._read_whole
            ):
                bits |= mark.condition.taint
        return bits

    def removed(self, origin: Origin) -> bool:
        """Whether the program itself removed all of an origin: by guards, in the same step, before
        it stopped anything.
        """
        return (
            origin.hidden_by is not None
            and origin.guarded
            and origin.failed_in is None
            and not origin.bit & self.left_open
        )

    def only_overwritten(self, node: Node) -> bool:
        """Whether every result of a call that is not finite was looked at only where another call
        was to overwrite it.
        """
        unsound = [identity_of(row) for row in node.outputs if is_read(row) and not is_finite(row)]
        return bool(unsound) and all(
            row in self._overwritten and not self.readers.get(row)
            for row in unsound
            if row is not None
        )

    def _replaces_a_part(self, node: Node, row: Row) -> bool:
        """Whether a call puts something else over part of a tensor: its diagonal, a row. Whole ones
        are overwritten to be used again.
        """
        if not works_in_place(node.op) or is_collective(node.op, node.phase):
            return False
        return any((mark.row.size or 0) > (row.size or 0) for mark in self._on_storage(row))

    # -- integers that wrapped ---------------------------------------------------------------------

    def _wrapped_of(self, row: Row) -> Wrapped | None:
        identity = identity_of(row) if self._wrapped else None
        return None if identity is None else self._wrapped.get(identity)

    def _unwrapped(
        self, node: Node, inputs: Sequence[Row], outputs: Sequence[Row], arguments: Arguments
    ) -> list[Held]:
        """A call's inputs with their conditions; wrapped ones are unsound to a call that made NaN
        or Inf and is finite without them.
        """
        held = [Held(row, self._condition(node, row)) for row in inputs]
        sound = (
            self._wrapped
            and not any(one.condition.taint for one in held)
            and not all(is_finite(row) for row in outputs)
        )
        seen = [(row, self._wrapped_of(row)) for row in inputs] if sound else []
        if not any(wrapped for _, wrapped in seen) or not is_finite_unwrapped(
            node.op, arguments, seen, outputs
        ):
            return held
        for _, wrapped in seen:
            self._confirm(0 if wrapped is None else wrapped.bits)
        conditions = [
            Condition(taint=wrapped.bits) if wrapped else one.condition
            for one, (_, wrapped) in zip(held, seen, strict=True)
        ]
        return [
            Held(one.reading, condition) for one, condition in zip(held, conditions, strict=True)
        ]

    def _follow_wrapped(
        self, node: Node, inputs: Sequence[Row], outputs: Sequence[Row], arguments: Arguments
    ) -> None:
        """Note a call whose integers wrap, and who reads what wrapped."""
        if not all(is_finite(row) for row in outputs):
            return
        seen = [
            (row, self._wrapped_of(row)) for row in inputs if not is_overwritten(node.op, row.slot)
        ]
        bits = 0
        for _, wrapped in seen:
            bits |= 0 if wrapped is None else wrapped.bits
        wraps = wraps_of(node.op, node.status, arguments, inputs, outputs)
        if not (bits or wraps):
            return
        self.wrapping.add(id(node))
        for origin in self.of(bits):
            origin.wraps_again = origin.wraps_again or bool(wraps)
            origin.modular = (
                origin.modular
                or traits_of(node.op).bitwise
                or (origin.wraps_again and reduces(node.op))
            )
        if wraps and not bits:
            bits = self.mark
            self.add(
                Origin(
                    bits,
                    node,
                    "wrapped",
                    confirmed=True,
                    modular=scatters(node.op, arguments, inputs),
                )
            )
        if wraps or follows(node.op):
            state = Wrapped(bits, unwrapped(node.op, arguments, seen))
            self._wrapped.update(
                {identity: state for row in outputs if (identity := identity_of(row)) is not None}
            )

    # -- one input ---------------------------------------------------------------------------------

    def _condition(self, node: Node, row: Row) -> Condition:
        """Condition of an input; a finite one needs no search."""
        if is_finite(row):
            return FINITE
        identity = identity_of(row)
        condition = None if identity is None else self._conditions.get(identity)
        if condition is None:
            condition = self._search(node, row, identity)
        if is_overwritten(node.op, row.slot):
            if identity is not None:
                self._overwritten.add(identity)
        elif condition != FINITE:
            self.read.append(Mark(node, row, condition))
            if identity is not None:
                self.readers[identity].append(node)
        return condition

    def _search(self, node: Node, row: Row, identity: Identity | None) -> Condition:
        marks = self._by_storage(row) or self._by_name(row)
        named = row.version is not None or row.storage is not None
        if not (marks or (named and self._edges)) and self._last.get(row.process) is not None:
            marks = [self._last[row.process]]  # what spreads is not a second cause
        if not marks and (not is_read(row) or is_overwritten(node.op, row.slot)):
            return FINITE
        if not marks:
            return self._arrival(node, row, identity)
        condition = FINITE
        for mark in marks:
            condition |= mark.condition
        if not is_overwritten(node.op, row.slot):
            parts = [
                mark for mark in self._on_storage(row) if (mark.row.size or 0) <= (row.size or 0)
            ]
            self._read_whole.update(identity_of(mark.row) for mark in (*marks, *parts))
        if identity is not None:
            self._conditions[identity] = condition
            self.produced[identity] = max(
                marks, key=lambda mark: (bool(mark.condition.taint), mark.node.index)
            )
        return condition

    def _on_storage(self, row: Row) -> list[Mark]:
        """What was written to a row's storage; nothing where that is not known."""
        if row.storage is None:
            return []
        return self._storages.get((row.process, row.storage), [])

    def _by_storage(self, row: Row) -> list[Mark]:
        """Latest outputs on the row's storage that held each kind of value it holds, those at its
        own offset first.
        """
        log = self._on_storage(row)
        marks: list[Mark] = []
        for kind in KINDS:
            if not getattr(row, kind) and is_read(row):
                continue
            fitting = [
                mark
                for mark in log
                if getattr(mark.row, kind) or not is_read(mark.row) or not is_read(row)
            ]
            known = [mark for mark in fitting if not mark.condition.uninitialised] or fitting
            near = [mark for mark in known if mark.row.offset == row.offset] or known
            if near and near[-1] not in marks:
                marks.append(near[-1])
            if not near and getattr(row, kind) and kind != "neg_inf":
                return []
        return marks

    def _by_name(self, row: Row) -> list[Mark]:
        """For dumps without versions: the parameter of this name was damaged before."""
        if (
            row.tensor_name is None
            or row.role not in {"parameter", "buffer", "gradient"}
            or row.version is not None
        ):
            return []
        mark = self._names.get((row.process, row.tensor_name))
        return [] if mark is None else [mark]

    def _arrival(self, node: Node, row: Row, identity: Identity | None) -> Condition:
        mark = self.mark
        condition = arrived(row, role=row.role, mark=mark)
        if condition.taint or condition.pending:
            self.add(self._arrived(node, row, mark, confirmed=bool(condition.taint)))
        if identity is not None:
            self._conditions[identity] = condition
        if condition.taint and not self._edges:
            self._last[row.process] = Mark(node, row, condition)
        return condition

    def _arrived(self, node: Node, row: Row, mark: int, *, confirmed: bool) -> Origin:
        maker = self._awaited([row])
        if maker is None:
            return Origin(mark, node, "arrived", row=row, confirmed=confirmed)
        received = is_collective(maker.op, maker.phase)
        return Origin(
            mark,
            maker,
            "received" if received else "unseen",
            row=row,
            confirmed=confirmed,
            used=True,
        )


def _is_gradient_of(node: Node, forward: Node) -> bool:
    """Whether a call is the gradient of another, to which the other's results are handed for that
    alone.
    """
    return node.phase == "backward" and (node.process, node.forward_index) == (
        forward.process,
        forward.index,
    )


def _picked_by_mask(mark: Mark) -> bool:
    """Whether a result is what a mask picked out for not being finite: whoever leaves it unread
    asked how many there are.
    """
    node, row, known = mark.node, mark.row, traits_of(mark.node.op)
    unsound = (row.nan or 0) + (row.pos_inf or 0) + (row.neg_inf or 0)
    return (
        known.picks
        and row.size == unsound
        and any(tensor.dtype == "bool" for tensor in node.inputs)
    )


def identity_of(row: Row) -> Identity | None:
    """What makes two rows the same tensor state: the version; where a dump has none, content that
    is hardly a coincidence.
    """
    if row.version is not None:
        return (row.process, "version", row.version)
    if row.storage is not None:
        return None
    if row.digest is not None:
        return (row.process, "digest", (row.digest, row.dtype))
    if row.nan is None:
        return None
    return (
        row.process,
        "content",
        (row.dtype, row.size, row.nan, row.pos_inf, row.neg_inf, row.min, row.max, row.l2norm),
    )


def _among_floats(node: Node) -> bool:
    known = [find_dtype(row.dtype) for row in (node.inputs[0], *node.outputs)]
    return all(dtype is not None and dtype.kind == "float" for dtype in known)
