# SPDX-License-Identifier: Apache-2.0
"""What becomes of NaN and infinities in one call: docs/soundness.md as a pure function.

A tensor state that is not finite has a Condition. judge() takes the conditions of a call's inputs
and gives those of its outputs, and says what the call did. Origins are bits of an int: the caller
hands in the bit (mark) that a new origin gets.

- taint: unsound, and from which origins;
- pending: not yet an accusation, and whose it would be. A -Inf computed in a forward pass (log of
  0) and a mask that became +Inf are pending: their creator is an origin only if NaN or +Inf derives
  from them, or they reach a loss, a gradient or a parameter; signs says which infinities a pending
  tensor holds, so that a +Inf that is only passed on derives nothing;
- mask: infinities that come from scalar or constant arguments, or from adding a mask to finite
  values;
- uninitialised: whatever an allocator's memory held.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from opscope.judge.arguments import Arguments
from opscope.judge.operators import is_overwritten
from opscope.judge.reading import Reading, holds_lowest, is_finite, is_read
from opscope.operators.catalogue import family, traits_of

NEGATIVE, POSITIVE = 1, 2


class Condition(msgspec.Struct, frozen=True, gc=False):
    """How a tensor state that is not finite came about; all zero is a finite one."""

    taint: int = 0
    pending: int = 0
    mask: int = 0
    uninitialised: bool = False
    signs: int = 0

    def __or__(self, other: Condition) -> Condition:
        return Condition(
            self.taint | other.taint,
            self.pending | other.pending,
            self.mask | other.mask,
            self.uninitialised or other.uninitialised,
            self.signs | other.signs,
        )


FINITE = Condition()
UNINITIALISED = Condition(uninitialised=True)


class Judgement(msgspec.Struct, frozen=True, gc=False):
    """What one call did.

    kind: sound, mask, pending, origin, propagator, hider, moved (only passed on what it read),
    uninitialised (an allocator).
    outputs: a Condition for each output given. confirmed: pending origins that NaN or +Inf now
    derives from.
    cause, for origin and pending: computed, mask (a mask was turned into it), uninitialised (unset
    memory was read), constant (a NaN that is a scalar argument), moved (a copy holds more than what
    was copied: somebody wrote unseen).
    """

    kind: str
    outputs: tuple[Condition, ...]
    confirmed: int = 0
    cause: str | None = None


class Held(msgspec.Struct, frozen=True, gc=False):
    """One tensor a call read, and its condition."""

    reading: Reading
    condition: Condition = FINITE


class _Seen(msgspec.Struct, frozen=True, gc=False):
    """A call's inputs taken together, write-only ones left out; the outputs; what the scalars put
    in.
    """

    op: str
    arguments: Arguments
    inputs: tuple[Held, ...]
    outputs: tuple[Reading, ...]
    given: Condition

    @property
    def nan(self) -> bool:
        return any(out.nan for out in self.outputs)

    @property
    def positive(self) -> bool:
        return any(out.pos_inf for out in self.outputs)

    @property
    def negative(self) -> bool:
        return any(out.neg_inf for out in self.outputs)


def arrived(reading: Reading, *, role: str | None, mark: int) -> Condition:
    """Condition of a tensor that nobody recorded produced.

    NaN: unsound. +Inf is pending: it may be a bound or a distance that was set before recording
    began; a single +Inf (a best loss so far) is a constant. Only -Inf: a mask when all its finite
    elements are equal and it is no parameter, else pending.
    """
    if reading.nan:
        return Condition(taint=mark)
    if reading.pos_inf:
        constant = reading.size == 1 and role not in {"parameter", "gradient"}
        signs = POSITIVE | (NEGATIVE if reading.neg_inf else 0)
        return Condition(mask=signs) if constant else Condition(pending=mark, signs=signs)
    if not reading.neg_inf:
        return FINITE
    if role in {"parameter", "gradient"} or reading.min != reading.max:
        return Condition(pending=mark, signs=NEGATIVE)
    return Condition(mask=NEGATIVE)


def judge(
    op: str,
    arguments: Arguments,
    inputs: Sequence[Held],
    outputs: Sequence[Reading],
    *,
    mark: int,
    backward: bool = False,
) -> Judgement:
    """What a call did to values that are not finite, and the conditions of its outputs; mark is the
    bit of a new origin.

    backward: the call computes a gradient, whose sign says nothing: a computed -Inf is as unsound
    as +Inf.
    """
    if traits_of(op).allocates:
        return Judgement("uninitialised", tuple(UNINITIALISED for _ in outputs))
    scratch = traits_of(op).scratch.split(",")
    if any(out.slot in scratch and not is_finite(out) for out in outputs):
        return _beside_scratch(op, arguments, inputs, outputs, mark=mark, backward=backward)
    read = tuple(held for held in inputs if not is_overwritten(op, held.reading.slot))
    given = FINITE
    for held in read:
        given |= held.condition
    seen = _Seen(op, arguments, read, tuple(outputs), given)
    if all(is_finite(out) for out in outputs):
        silent = traits_of(op).silent or not outputs
        return Judgement(
            "hider" if given.taint and not silent else "sound", tuple(FINITE for _ in outputs)
        )
    if given.taint:
        return _fill(seen, "propagator", Condition(taint=given.taint))
    if given.uninitialised:
        return _unset(seen, mark)
    return _sound_inputs(seen, mark, backward=backward)


def _beside_scratch(
    op: str,
    arguments: Arguments,
    inputs: Sequence[Held],
    outputs: Sequence[Reading],
    *,
    mark: int,
    backward: bool,
) -> Judgement:
    """The judgement of the other outputs; what scratch memory holds means nothing, but for what
    unsound inputs may have put there.
    """
    scratch = traits_of(op).scratch.split(",")
    rest = judge(
        op,
        arguments,
        inputs,
        [out for out in outputs if out.slot not in scratch],
        mark=mark,
        backward=backward,
    )
    conditions = iter(rest.outputs)
    memory = UNINITIALISED
    for held in inputs:
        memory |= Condition(taint=held.condition.taint)
    merged = tuple(
        (FINITE if is_finite(out) else memory) if out.slot in scratch else next(conditions)
        for out in outputs
    )
    return msgspec.structs.replace(
        rest, kind="uninitialised" if rest.kind == "sound" else rest.kind, outputs=merged
    )


def _sound_inputs(seen: _Seen, mark: int, *, backward: bool) -> Judgement:
    """No input is unsound: the outputs are masks, pending, or this call is the origin (or confirms
    a pending one).
    """
    if not (seen.nan or seen.positive or seen.negative):
        return _fill(seen, "moved" if seen.given.pending else "sound", seen.given)
    if seen.nan:
        return _with_nan(seen, mark)
    if seen.positive and not _explained(seen, POSITIVE):
        return _with_infinity(seen, mark)
    if seen.given.pending:
        return _fill(seen, "moved", seen.given)
    if seen.negative and not _explained(seen, NEGATIVE):
        if backward:
            return _origin(seen, mark)
        return _fill(
            seen,
            "pending",
            Condition(pending=mark, mask=seen.given.mask, signs=NEGATIVE),
            cause="computed",
        )
    signs = (NEGATIVE if seen.negative else 0) | (POSITIVE if seen.positive else 0)
    return _fill(seen, "mask", Condition(mask=signs))


def _propagated(seen: _Seen) -> Judgement:
    """What was pending has become unsound: where it came from is confirmed."""
    pending = seen.given.pending
    return _fill(seen, "propagator", Condition(taint=pending), confirmed=pending)


def _with_nan(seen: _Seen, mark: int) -> Judgement:
    if seen.given.pending:
        return _propagated(seen)
    if traits_of(seen.op).places and seen.arguments.places_nan:
        return _fill(
            seen, "pending", Condition(pending=mark, signs=NEGATIVE | POSITIVE), cause="constant"
        )
    return _origin(seen, mark)


def _with_infinity(seen: _Seen, mark: int) -> Judgement:
    """+Inf that no scalar and no +Inf mask explains."""
    if seen.given.pending and seen.given.signs & POSITIVE:
        return _fill(seen, "moved", seen.given)
    if seen.given.pending:
        return _propagated(seen)
    if seen.given.mask and (traits_of(seen.op).flips or traits_of(seen.op).loss):
        # Not an overflow: -(-inf), |-inf|, a masked class chosen as target. Harmless unless it gets
        # somewhere.
        return _fill(
            seen,
            "pending",
            Condition(pending=mark, mask=seen.given.mask, signs=POSITIVE),
            cause="mask",
        )
    return _origin(seen, mark)


def _origin(seen: _Seen, mark: int) -> Judgement:
    cause = "mask" if seen.given.mask else "computed"
    if (
        traits_of(seen.op).moves
        and not _changes_type(seen)
        and all(is_read(held.reading) for held in seen.inputs)
        and seen.inputs
    ):
        cause = "moved"
    return _fill(seen, "origin", Condition(taint=mark), cause=cause)


def _unset(seen: _Seen, mark: int) -> Judgement:
    """Memory that was never set was read: harmless while it is only moved."""
    if traits_of(seen.op).moves and not _changes_type(seen):
        return _fill(seen, "moved", UNINITIALISED)
    if seen.nan or seen.positive:
        return _fill(seen, "origin", Condition(taint=mark), cause="uninitialised")
    if seen.negative:
        return _fill(
            seen, "pending", Condition(pending=mark, signs=NEGATIVE), cause="uninitialised"
        )
    return _fill(seen, "sound", FINITE)


def _fill(
    seen: _Seen, kind: str, condition: Condition, *, confirmed: int = 0, cause: str | None = None
) -> Judgement:
    """The condition goes to every output that is not finite, unread ones included."""
    return Judgement(
        kind,
        tuple(FINITE if is_finite(out) else condition for out in seen.outputs),
        confirmed,
        cause,
    )


def _changes_type(seen: _Seen) -> bool:
    given = {held.reading.dtype for held in seen.inputs}
    return any(out.dtype not in given for out in seen.outputs if not is_finite(out))


def _explained(seen: _Seen, sign: int) -> bool:
    """Whether infinities of this sign in the outputs need no overflow: scalars, masks, masks added
    to finite values.
    """
    known = traits_of(seen.op)
    if not known.order and (
        seen.arguments.places_negative_infinity or seen.arguments.places_positive_infinity
    ):
        return True
    if family(seen.op) in {"lift_fresh", "lift_fresh_copy"}:
        return True
    if sign == NEGATIVE and any(holds_lowest(held.reading) for held in seen.inputs):
        return True
    if sign == NEGATIVE and _beyond_type(seen):
        return True
    from_masks = seen.given.mask & sign or (
        seen.given.mask & POSITIVE and sign == NEGATIVE and known.flips
    )
    return bool(from_masks) and not _more_than_masks(seen, sign)


def _beyond_type(seen: _Seen) -> bool:
    """A scalar that the output's type cannot hold is placed as -Inf: full(-1e9) in float16."""
    if not traits_of(seen.op).places:
        return False
    return any(value <= -65504.0 for _, value in seen.arguments.scalars) and not any(
        held.reading.neg_inf for held in seen.inputs
    )


def _more_than_masks(seen: _Seen, sign: int) -> bool:
    """Whether an element-wise call made more infinities than its masks, broadcast to the output,
    account for.
    """
    if not traits_of(seen.op).pointwise or len(seen.outputs) != 1:
        return False
    out = seen.outputs[0]
    expected = 0.0
    for held in seen.inputs:
        reading = held.reading
        if reading.size and out.size:
            expected += ((reading.neg_inf or 0) + (reading.pos_inf or 0)) * max(
                1.0, out.size / reading.size
            )
    made = out.neg_inf if sign == NEGATIVE else out.pos_inf
    return made is not None and made > math.ceil(expected)
