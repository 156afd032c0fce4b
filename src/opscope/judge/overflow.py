# SPDX-License-Identifier: Apache-2.0
"""Overflow bits of one call, worked out in software, with reasons in words.

The vocabulary is the one CANN uses for AI Core status (docs/architecture.md section 5): 0x8
negating the most negative integer, 0x10 integer add/sub/mul/mac overflow, 0x20 floating-point
overflow, 0x80 negative float to unsigned, 0x100 overflow of a conversion to a narrower float, 0x400
accumulation overflow.

status_of() judges one call from its operator, scalars and the statistics of its tensors. It is
meant for calls whose inputs
are sound: what a call passes on is not its overflow. Rules stand in overflow_rules.py, one for each
operator family.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from opscope.judge.arguments import Arguments
from opscope.judge.integers import clipped_of, integer_bits
from opscope.judge.limits import is_unsigned, largest_finite, overflow_threshold
from opscope.judge.overflow_rules import explain
from opscope.judge.reading import Reading, magnitude
from opscope.judge.rules import Facts, facts_of
from opscope.judge.soundness import NEGATIVE, Condition, Held, judge
from opscope.operators.catalogue import family, traits_of

NEGATION, INTEGER, FLOAT, UNSIGNED, NARROWING, ACCUMULATION = 0x8, 0x10, 0x20, 0x80, 0x100, 0x400

WORDS: dict[int, str] = {
    NEGATION: "negation of the most negative integer",
    INTEGER: "integer overflow",
    FLOAT: "floating-point overflow",
    UNSIGNED: "negative float to unsigned",
    NARROWING: "overflow of a conversion to a narrower type",
    ACCUMULATION: "accumulation overflow",
}


class Status(msgspec.Struct, frozen=True):
    """Overflow bits and why; saturated: the result was clipped to the largest finite value instead
    of overflowing.
    """

    bits: int = 0
    reasons: tuple[str, ...] = ()
    saturated: bool = False

    def __or__(self, other: Status) -> Status:
        return Status(
            self.bits | other.bits,
            tuple(dict.fromkeys((*self.reasons, *other.reasons))),
            self.saturated or other.saturated,
        )


NOTHING = Status()


def status_of(
    op: str, arguments: Arguments, inputs: Sequence[Reading], outputs: Sequence[Reading]
) -> Status:
    """Overflow bits and reasons of a call whose inputs are sound; no bits when nothing is wrong or
    nothing can be proven.
    """
    facts = facts_of(op, arguments, inputs, outputs)
    status = _float_status(facts)
    bits = integer_bits(op, arguments, facts.inputs, outputs)
    if bits:
        status |= Status(bits, (words_of(bits)[0],))
    return (
        status | _unsigned_status(facts) | saturated(facts) | (NOTHING if bits else _clipped(facts))
    )


def words_of(bits: int) -> tuple[str, ...]:
    """The vocabulary's words for these bits, lowest first; an unknown bit is given in
    hexadecimal.
    """
    known = tuple(word for bit, word in WORDS.items() if bits & bit)
    rest = bits & ~sum(WORDS)
    return (*known, f"status bits {rest:#x}") if rest else known


def _float_status(facts: Facts) -> Status:
    """Bits of a call that made NaN or infinities."""
    if not (facts.nan or facts.infinite):
        return NOTHING
    if _passed_on(facts):
        return NOTHING
    explained = explain(facts)
    known = traits_of(facts.op)
    masked = any(r.pos_inf or r.neg_inf for r in facts.inputs)
    narrowed = _narrowing(facts)
    if known.cast and narrowed is not None and not facts.nan:
        return Status(NARROWING, (f"{narrowed} overflow", *explained))
    if known.contraction and not masked:
        return Status(ACCUMULATION, (WORDS[ACCUMULATION], *explained))
    first = WORDS[FLOAT] if facts.infinite and not facts.nan else "invalid floating-point operation"
    return Status(FLOAT, (first, *explained))


def _passed_on(facts: Facts) -> bool:
    """Whether the outputs hold only what scalars or masks put there."""
    held = [
        Held(
            r,
            Condition(mask=NEGATIVE) if r.neg_inf and not r.nan and not r.pos_inf else Condition(),
        )
        for r in facts.inputs
    ]
    return judge(facts.op, facts.arguments, held, facts.outputs, mark=1).kind in {
        "mask",
        "uninitialised",
    }


def _narrowing(facts: Facts) -> str | None:
    """ "float32 to float16", when the call converts to a type of smaller range."""
    source = _converted(facts)
    if source is None or not facts.outputs:
        return None
    target = facts.outputs[0].dtype
    largest = largest_finite(target)
    if largest is None or source.dtype == target:
        return None
    before = largest_finite(source.dtype)
    return f"{source.dtype} to {target}" if before is None or before > largest else None


def _converted(facts: Facts) -> Reading | None:
    return (
        facts.input("1")
        if family(facts.op) == "copy"
        else (facts.inputs[0] if facts.inputs else None)
    )


def _unsigned_status(facts: Facts) -> Status:
    """A conversion of a float that truncates to a negative integer."""
    source = _converted(facts)
    if (
        not traits_of(facts.op).cast
        or source is None
        or not facts.outputs
        or not is_unsigned(facts.outputs[0].dtype)
    ):
        return NOTHING
    if largest_finite(source.dtype) is None or source.min is None or source.min > -1.0:
        return NOTHING
    return Status(
        UNSIGNED,
        (WORDS[UNSIGNED], f"{source.dtype} {source.min:.6g} has no {facts.outputs[0].dtype}"),
    )


def _clipped(facts: Facts) -> Status:
    """An integer result exactly at the end of its type's range, where the inputs imply more."""
    bound = clipped_of(facts.op, facts.arguments, facts.inputs, facts.outputs)
    if bound is None:
        return NOTHING
    return Status(
        INTEGER,
        (WORDS[INTEGER], f"saturated at {bound}, the end of the range of {facts.outputs[0].dtype}"),
        saturated=True,
    )


def saturated(facts: Facts) -> Status:
    """An output exactly at the largest finite value of a narrow type, where the inputs imply a
    larger true result.

    Devices in saturation mode clip there instead of overflowing. Inputs already at that value are
    masks or clipped before.
    """
    if len(facts.outputs) != 1 or facts.nan or facts.infinite:
        return NOTHING
    out = facts.outputs[0]
    limit, threshold = largest_finite(out.dtype), overflow_threshold(out.dtype)
    if limit is None or threshold is None or limit > 65504.0 or magnitude(out) != limit:
        return NOTHING
    implied = _implied(facts)
    if implied is None or implied < threshold or _given(facts, limit, out.dtype):
        return NOTHING
    bit = (
        NARROWING
        if traits_of(facts.op).cast
        else ACCUMULATION
        if traits_of(facts.op).contraction
        else FLOAT
    )
    words = (
        f"saturated at {limit:g}, the largest finite {out.dtype}; the inputs allow {implied:.6g}"
    )
    return Status(bit, (WORDS[bit], words), saturated=True)


def newly_at_the_limit(
    op: str, arguments: Arguments, inputs: Sequence[Reading], outputs: Sequence[Reading]
) -> Status:
    """A result exactly at the largest finite value of a narrow type, where nothing that the call
    read is as large. What the inputs imply is not asked: the device has told that something
    overflowed.
    """
    facts = facts_of(op, arguments, inputs, outputs)
    if len(outputs) != 1 or facts.nan or facts.infinite or not inputs:
        return NOTHING
    if any(reading.nan or reading.pos_inf or reading.neg_inf for reading in facts.inputs):
        return NOTHING  # nan_to_num puts the limit in its place
    limit = largest_finite(outputs[0].dtype)
    sizes = [magnitude(reading) for reading in facts.inputs]
    if limit is None or limit > 65504.0 or magnitude(outputs[0]) != limit or None in sizes:
        return NOTHING
    scalars = [abs(value) for _, value in arguments.scalars]
    if max(scalars + [size for size in sizes if size is not None]) >= limit:
        return NOTHING
    words = (
        f"saturated at {limit:g}, the largest finite {outputs[0].dtype}; "
        "nothing that it read is as large"
    )
    return Status(FLOAT, (WORDS[FLOAT], words), saturated=True)


def at_the_limit(op: str, outputs: Sequence[Reading]) -> Status:
    """A result of arithmetic exactly at the largest finite value of a narrow type, where nothing is
    known of the inputs.

    The lowest value is left out: masks are made of it. That is no proof; it is what a saturating
    device leaves behind.
    """
    if len(outputs) != 1 or not traits_of(op).saturates:
        return NOTHING
    limit = largest_finite(outputs[0].dtype)
    if (
        limit is None
        or limit > 65504.0
        or outputs[0].max != limit
        or outputs[0].nan
        or outputs[0].pos_inf
    ):
        return NOTHING
    bit = ACCUMULATION if traits_of(op).contraction else FLOAT
    return Status(
        bit,
        (
            WORDS[bit],
            (
                f"saturated at {limit:g}, the largest finite {outputs[0].dtype}; the inputs were "
                "not dumped"
            ),
        ),
        saturated=True,
    )


def _given(facts: Facts, limit: float, dtype: str) -> bool:
    """Whether the limit was put in: an input of the same type, or a scalar, that lies at it."""
    if any(
        reading.dtype == dtype and (magnitude(reading) or 0.0) >= limit for reading in facts.inputs
    ):
        return True
    return any(abs(value) == limit for _, value in facts.arguments.scalars)


def _implied(facts: Facts) -> float | None:
    """Bound of the true result's magnitude, for the families where one follows from the inputs'
    extremes; else None.
    """
    sizes = [magnitude(reading) for reading in facts.inputs]
    if not sizes or any(size is None for size in sizes):
        return None
    tensors = [size for size in sizes if size is not None]
    scalars = [
        abs(float(value))
        for slot, value in facts.arguments.scalars
        if not slot.startswith("kwargs.") and "." not in slot
    ]
    name, known = family(facts.op), traits_of(facts.op)
    if known.cast:
        return tensors[-1] if name == "copy" else tensors[0]
    if name in {"add", "sub", "rsub"}:
        return sum(tensors) + sum(scalars[:1])
    if name == "mul":
        return _product(tensors + scalars)
    if name == "square":
        return tensors[0] ** 2
    if name in {"sum", "cumsum"}:
        return tensors[0] * (facts.inputs[0].size or 0)
    if known.contraction and len(facts.inputs) >= 2:
        return _product(sorted(tensors)[-2:]) * max(
            1, min(reading.size or 1 for reading in facts.inputs)
        )
    return None


def _product(values: Sequence[float]) -> float:
    result = 1.0
    for value in values:
        result *= value
    return result
