# SPDX-License-Identifier: Apache-2.0
"""The rule for one call, over hand-made readings."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from opscope.judge.arguments import NO_ARGUMENTS, Arguments
from opscope.judge.soundness import (
    FINITE,
    NEGATIVE,
    POSITIVE,
    UNINITIALISED,
    Condition,
    Held,
    arrived,
    judge,
)

MINUS_INFINITY = Arguments((("1", -math.inf),))
MARK = 8
TAINT, PENDING, MASK = (
    Condition(taint=1),
    Condition(pending=2, signs=NEGATIVE),
    Condition(mask=NEGATIVE),
)


class Sample(msgspec.Struct, frozen=True):
    slot: str = "0"
    dtype: str = "float32"
    size: int | None = 4
    nan: int | None = 0
    pos_inf: int | None = 0
    neg_inf: int | None = 0
    zero: int | None = 0
    neg: int | None = 0
    min: float | None = -1.0
    max: float | None = 1.0
    min_int: int | None = None
    max_int: int | None = None


SOUND = Sample()
NAN, PLUS, MINUS, UNREAD = (
    Sample(nan=1),
    Sample(pos_inf=1),
    Sample(neg_inf=1),
    Sample(nan=None, size=4),
)


def verdict(
    op: str,
    inputs: list[tuple[Sample, Condition]],
    outputs: list[Sample],
    arguments: Arguments = NO_ARGUMENTS,
) -> Any:
    judged = judge(
        f"aten::{op}.default", arguments, [Held(*one) for one in inputs], outputs, mark=MARK
    )
    return judged.kind, *judged.outputs


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "kind", "condition"),
    [
        ("add", [(SOUND, FINITE)], [SOUND], "sound", FINITE),
        ("log", [(SOUND, FINITE)], [NAN], "origin", Condition(taint=MARK)),
        ("exp", [(SOUND, FINITE)], [PLUS], "origin", Condition(taint=MARK)),
        ("log", [(SOUND, FINITE)], [MINUS], "pending", Condition(pending=MARK, signs=NEGATIVE)),
        ("add", [(NAN, TAINT)], [NAN], "propagator", TAINT),
        ("where", [(PLUS, TAINT)], [SOUND], "hider", FINITE),
        ("ones_like", [(PLUS, TAINT)], [SOUND], "sound", FINITE),
        ("mul", [(MINUS, PENDING)], [NAN], "propagator", Condition(taint=2)),
        ("neg", [(MINUS, PENDING)], [PLUS], "propagator", Condition(taint=2)),
        ("mul", [(MINUS, PENDING)], [MINUS], "moved", PENDING),
        ("_softmax", [(MINUS, PENDING)], [SOUND], "sound", FINITE),
        ("add", [(MINUS, MASK), (SOUND, FINITE)], [MINUS], "mask", MASK),
        ("_softmax", [(MINUS, MASK)], [NAN], "origin", Condition(taint=MARK)),
        (
            "neg",
            [(MINUS, MASK)],
            [PLUS],
            "pending",
            Condition(pending=MARK, mask=NEGATIVE, signs=POSITIVE),
        ),
        (
            "add",
            [(MINUS, MASK)],
            [Sample(neg_inf=3)],
            "pending",
            Condition(pending=MARK, mask=NEGATIVE, signs=NEGATIVE),
        ),
        ("empty", [], [UNREAD], "uninitialised", UNINITIALISED),
        ("select", [(UNREAD, UNINITIALISED)], [NAN], "moved", UNINITIALISED),
        ("sum", [(UNREAD, UNINITIALISED)], [NAN], "origin", Condition(taint=MARK)),
        ("sum", [(UNREAD, UNINITIALISED)], [SOUND], "sound", FINITE),
        ("copy_", [(NAN, TAINT), (Sample(slot="1"), FINITE)], [SOUND], "sound", FINITE),
        ("mul", [(NAN, TAINT)], [UNREAD], "propagator", TAINT),
        (
            "add",
            [(Sample(min=-3.4028234663852886e38), FINITE), (SOUND, FINITE)],
            [MINUS],
            "mask",
            MASK,
        ),
    ],
)
def test_one_call(op: str, inputs: Any, outputs: Any, kind: str, condition: Condition) -> None:
    assert verdict(op, inputs, outputs) == (kind, condition)


def test_what_a_forward_kernel_leaves_for_its_backward_means_nothing() -> None:
    for left in (NAN, PLUS, MINUS):
        scratch = msgspec.structs.replace(left, slot="1")
        assert verdict("_ctc_loss", [(SOUND, FINITE)], [SOUND, scratch]) == (
            "uninitialised",
            FINITE,
            UNINITIALISED,
        )
        assert verdict("_ctc_loss", [(SOUND, FINITE)], [PLUS, scratch]) == (
            "origin",
            Condition(taint=MARK),
            UNINITIALISED,
        )
        assert verdict("_ctc_loss", [(NAN, TAINT)], [NAN, scratch]) == (
            "propagator",
            TAINT,
            TAINT | UNINITIALISED,
        )


def test_infinite_scalars_make_masks() -> None:
    assert verdict("masked_fill", [(SOUND, FINITE)], [MINUS], MINUS_INFINITY) == ("mask", MASK)
    assert verdict("full", [], [PLUS], Arguments((("1", math.inf),))) == (
        "mask",
        Condition(mask=POSITIVE),
    )
    assert verdict("full", [], [NAN], Arguments((("1", math.nan),)))[0] == "pending"
    assert verdict("mul", [(SOUND, FINITE)], [NAN], MINUS_INFINITY)[0] == "origin"
    assert verdict("mul", [(SOUND, FINITE)], [PLUS], MINUS_INFINITY) == (
        "mask",
        Condition(mask=POSITIVE),
    )
    assert (
        verdict("linalg_vector_norm", [(SOUND, FINITE)], [PLUS], Arguments((("1", math.inf),)))[0]
        == "origin"
    )
    assert verdict("full", [], [MINUS], Arguments((("1", -1e9),)))[0] == "mask"


def test_pending_is_confirmed_by_what_derives_from_it() -> None:
    judged = judge("aten::mul.Tensor", NO_ARGUMENTS, [Held(MINUS, PENDING)], [NAN], mark=MARK)
    assert judged.confirmed == 2
    passed = judge("aten::mul.Tensor", NO_ARGUMENTS, [Held(MINUS, PENDING)], [MINUS], mark=MARK)
    assert passed.confirmed == 0


def test_an_infinity_that_is_only_passed_on_confirms_nothing() -> None:
    far = Condition(pending=2, signs=POSITIVE)
    judged = judge("aten::mul.Tensor", NO_ARGUMENTS, [Held(PLUS, far)], [PLUS], mark=MARK)
    assert (judged.kind, judged.confirmed) == ("moved", 0)


@pytest.mark.parametrize(
    ("reading", "role", "condition"),
    [
        (NAN, None, Condition(taint=MARK)),
        (PLUS, None, Condition(pending=MARK, signs=POSITIVE)),
        (Sample(pos_inf=1, size=1), None, Condition(mask=POSITIVE)),
        (Sample(pos_inf=1, size=1), "parameter", Condition(pending=MARK, signs=POSITIVE)),
        (Sample(neg_inf=1, min=0.0, max=0.0), None, MASK),
        (Sample(neg_inf=4, min=None, max=None), "buffer", MASK),
        (Sample(neg_inf=1, min=0.0, max=0.0), "parameter", Condition(pending=MARK, signs=NEGATIVE)),
        (MINUS, "input data", Condition(pending=MARK, signs=NEGATIVE)),
        (SOUND, None, FINITE),
    ],
)
def test_arrivals(reading: Sample, role: str | None, condition: Condition) -> None:
    assert arrived(reading, role=role, mark=MARK) == condition


def test_the_sign_of_a_gradient_says_nothing() -> None:
    forward = judge("aten::div.Tensor", NO_ARGUMENTS, [Held(SOUND)], [MINUS], mark=MARK)
    backward = judge(
        "aten::div.Tensor", NO_ARGUMENTS, [Held(SOUND)], [MINUS], mark=MARK, backward=True
    )
    assert (forward.kind, backward.kind) == ("pending", "origin")


def test_a_copy_that_holds_more_than_its_source_was_written_unseen() -> None:
    judged = judge("aten::clone.default", NO_ARGUMENTS, [Held(SOUND)], [NAN], mark=MARK)
    assert (judged.kind, judged.cause) == ("origin", "moved")
    cast = judge(
        "aten::_to_copy.default",
        NO_ARGUMENTS,
        [Held(SOUND)],
        [Sample(pos_inf=1, dtype="float16")],
        mark=MARK,
    )
    assert (cast.kind, cast.cause) == ("origin", "computed")
