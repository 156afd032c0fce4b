# SPDX-License-Identifier: Apache-2.0
"""Overflow bits and reasons of single calls, and the registries that hold the rules."""

from __future__ import annotations

import math

import pytest
from test_soundness import Sample

from opscope.judge.arguments import NO_ARGUMENTS, Arguments, parse_arguments
from opscope.judge.limits import integer_range, largest_finite, overflow_threshold
from opscope.judge.operators import element_of, is_overwritten
from opscope.judge.overflow import status_of, words_of
from opscope.judge.registry import Registry
from opscope.operators.catalogue import family


def half(**changes: object) -> Sample:
    return Sample(dtype="float16", **changes)  # type: ignore[arg-type]


def whole(low: int, high: int, dtype: str = "int32", slot: str = "0") -> Sample:
    return Sample(
        slot=slot, dtype=dtype, min=float(low), max=float(high), min_int=low, max_int=high
    )


@pytest.mark.parametrize(
    ("op", "inputs", "output", "bits", "says"),
    [
        ("aten::exp.default", [Sample(max=100.0)], Sample(pos_inf=1), 0x20, "exponential of 100"),
        (
            "aten::log.default",
            [Sample(zero=2, min=0.0)],
            Sample(neg_inf=2),
            0x20,
            "logarithm of zero (2 of 4",
        ),
        (
            "aten::log.default",
            [Sample(min=-2.0)],
            Sample(nan=1),
            0x20,
            "negative number (down to -2)",
        ),
        (
            "aten::div.Tensor",
            [Sample(), Sample(slot="1", zero=1)],
            Sample(pos_inf=1),
            0x20,
            "division by zero (1 of 4",
        ),
        (
            "RealDiv",
            [Sample(), Sample(slot="1", zero=1)],
            Sample(pos_inf=1),
            0x20,
            "division by zero",
        ),
        (
            "aten::bmm.default",
            [half(), half(slot="1")],
            half(pos_inf=37),
            0x400,
            "accumulation overflow",
        ),
        ("MatMulV2", [half(), half(slot="1")], half(pos_inf=37), 0x400, "accumulation overflow"),
        ("Conv2D", [half(), half(slot="1")], half(nan=1), 0x400, "accumulation overflow"),
        (
            "aten::_to_copy.default",
            [Sample(max=1e5)],
            half(pos_inf=1),
            0x100,
            "float32 to float16 overflow",
        ),
        ("Cast", [whole(0, 100000)], half(pos_inf=1), 0x100, "int32 to float16 overflow"),
        (
            "aten::_to_copy.default",
            [Sample(min=-3.0)],
            Sample(dtype="uint8"),
            0x80,
            "negative float to unsigned",
        ),
        ("aten::_to_copy.default", [Sample(min=-0.9)], Sample(dtype="uint8"), 0, ""),
        ("aten::neg.default", [whole(-(2**31), 3)], whole(-(2**31), -3), 0x8, "most negative"),
        (
            "aten::abs.default",
            [whole(-128, 3, "int8")],
            whole(-128, 3, "int8"),
            0x8,
            "most negative",
        ),
        ("aten::_softmax.default", [Sample(neg_inf=4)], Sample(nan=4), 0x20, "masked with -inf"),
        ("aten::relu.default", [Sample()], Sample(), 0, ""),
    ],
)
def test_bits_and_reasons(
    op: str, inputs: list[Sample], output: Sample, bits: int, says: str
) -> None:
    status = status_of(op, NO_ARGUMENTS, inputs, [output])
    assert status.bits == bits
    assert says in " | ".join(status.reasons)


@pytest.mark.parametrize(
    ("op", "inputs", "arguments", "output", "bits"),
    [
        ("mul.Tensor", [whole(1, 10**9)], (("1", 3),), whole(3, 5), 0x10),
        ("mul.Tensor", [whole(1, 10**8)], (("1", 3),), whole(3, 3 * 10**8), 0),
        ("add.Tensor", [whole(1, 2**31 - 1)], (("1", 1),), whole(-(2**31), 2), 0x10),
        ("add.Tensor", [whole(1, 10)], (("1", 2), ("kwargs.alpha", 2**31)), whole(1, 10), 0x10),
        ("sub.Tensor", [whole(-(2**31), 0)], (("1", 1),), whole(0, 1), 0x10),
        ("rsub.Scalar", [whole(-(2**31), 0)], (("1", 0),), whole(0, 1), 0x10),
        ("sub.Tensor", [whole(100, 200, "uint8")], (("1", 150),), whole(0, 255, "uint8"), 0x10),
        ("pow.Tensor_Scalar", [whole(0, 50000)], (("1", 2),), whole(0, 1), 0x10),
        ("pow.Tensor_Scalar", [whole(0, 40000)], (("1", 2),), whole(0, 1600000000), 0),
        ("neg.default", [whole(0, 200, "uint8")], (), whole(0, 255, "uint8"), 0),
        ("_foreach_neg.default", [whole(0, 200, "uint8")], (), whole(0, 255, "uint8"), 0),
        # Two tensors whose largest elements may never meet: not proven.
        (
            "add.Tensor",
            [whole(0, 2**31 - 1), whole(0, 2**31 - 1, slot="1")],
            (),
            whole(0, 2**31 - 1),
            0,
        ),
        # A sum of non-negative numbers that is negative.
        (
            "add.Tensor",
            [whole(0, 2**31 - 1), whole(0, 2**31 - 1, slot="1")],
            (),
            whole(-5, 2**31 - 1),
            0x10,
        ),
        (
            "add.Tensor",
            [whole(2**30, 2**31 - 1), whole(2**30, 2**31 - 1, slot="1")],
            (),
            whole(0, 5),
            0x10,
        ),
        (
            "mul.Tensor",
            [whole(0, 2**40, "int64"), whole(0, 2**40, "int64", "1")],
            (),
            whole(0, 7, "int64"),
            0,
        ),
        ("__lshift__.Scalar", [whole(1, 2**20)], (("1", 30),), whole(0, 1), 0),
        ("sum.default", [whole(0, 2**62, "int64")], (), whole(0, 5, "int64"), 0),
        ("mul.Tensor", [whole(1, 10**9)], (("1", 3.5),), Sample(), 0),
    ],
)
def test_integers_by_their_extremes(
    op: str,
    inputs: list[Sample],
    arguments: tuple[tuple[str, float], ...],
    output: Sample,
    bits: int,
) -> None:
    assert status_of(f"aten::{op}", Arguments(arguments), inputs, [output]).bits == bits


@pytest.mark.parametrize(
    ("op", "inputs", "output", "saturated"),
    [
        ("Add", [half(max=60000.0), half(slot="1", max=60000.0)], half(max=65504.0), True),
        ("Add", [half(max=60000.0), half(slot="1", max=5000.0)], half(max=65504.0), False),
        ("Add", [half(max=65504.0), half(slot="1", max=60000.0)], half(max=65504.0), False),
        ("Add", [half(max=60000.0), half(slot="1", max=60000.0)], half(max=65472.0), False),
        ("Cast", [Sample(max=1e5)], half(max=65504.0), True),
        ("Cast", [Sample(max=65510.0)], half(max=65504.0), False),
        ("Cast", [Sample(max=700.0)], Sample(dtype="float8_e4m3fn", max=448.0), True),
        ("Cast", [Sample(max=448.0)], Sample(dtype="float8_e4m3fn", max=448.0), False),
        (
            "MatMul",
            [half(max=300.0, size=4096), half(slot="1", max=300.0, size=4096)],
            half(max=65504.0),
            True,
        ),
        ("aten::clamp.default", [Sample(max=1e9)], half(max=65504.0), False),
        (
            "Add",
            [Sample(max=3e38), Sample(slot="1", max=3e38)],
            Sample(max=3.4028234663852886e38),
            False,
        ),
        ("Cast", [Sample(max=300.0, min=0.0)], whole(0, 255, "uint8"), True),
        ("Cast", [Sample(max=255.7, min=0.0)], whole(0, 255, "uint8"), False),
        ("Cast", [Sample(max=3.0, min=-900.0)], whole(-128, 3, "int8"), True),
        (
            "Add",
            [whole(0, 200, "uint8"), whole(0, 200, "uint8", "1")],
            whole(0, 255, "uint8"),
            False,
        ),
        (
            "Add",
            [whole(0, 30000, "int16"), whole(0, 30000, "int16", "1")],
            whole(0, 32767, "int16"),
            True,
        ),
        (
            "Add",
            [whole(0, 32767, "int16"), whole(0, 30000, "int16", "1")],
            whole(0, 32767, "int16"),
            False,
        ),
    ],
)
def test_saturation(op: str, inputs: list[Sample], output: Sample, saturated: bool) -> None:
    status = status_of(op, NO_ARGUMENTS, inputs, [output])
    assert status.saturated == saturated
    assert bool(status.bits) == saturated


def test_masks_have_no_bits() -> None:
    placed = Arguments((("1", -math.inf),))
    assert status_of("aten::masked_fill.Scalar", placed, [Sample()], [Sample(neg_inf=2)]).bits == 0
    assert (
        status_of(
            "aten::add.Tensor",
            NO_ARGUMENTS,
            [Sample(neg_inf=2), Sample(slot="1")],
            [Sample(neg_inf=2)],
        ).bits
        == 0
    )


def test_words_of_unknown_bits() -> None:
    assert words_of(0x8 | 0x400) == (
        "negation of the most negative integer",
        "accumulation overflow",
    )
    assert words_of(0x20 | 0x10000) == ("floating-point overflow", "status bits 0x10000")


def test_a_second_rule_for_a_family_is_refused() -> None:
    rules: Registry[str] = Registry("overflow")
    rules.of("exp")("of exp")
    with pytest.raises(ValueError, match="two overflow rules for operator family 'exp'"):
        rules.of("log", "exp")("another")
    assert (rules.find("aten::_foreach_exp.default"), rules.find("sin")) == ("of exp", None)


@pytest.mark.parametrize(
    ("op", "name"),
    [
        ("aten::log_.default", "log"),
        ("aten::_softmax.default", "_softmax"),
        ("aten::__lshift__.Scalar", "__lshift__"),
        ("aten::_foreach_add_.List", "_foreach_add"),
        ("torch.nn.functional.gelu", "gelu"),
        ("torch.Tensor.add_", "add"),
        ("BatchMatMulV2", "bmm"),
        ("Conv2D", "conv2d"),
        ("RealDiv", "div"),
        ("Functional.linear", "linear"),
        ("Cast", "cast"),
        ("my::op", "op"),
        ("", ""),
    ],
)
def test_families(op: str, name: str) -> None:
    assert family(op) == name


def test_write_only_arguments() -> None:
    assert is_overwritten("aten::copy_.default", "0")
    assert not is_overwritten("aten::copy_.default", "1")
    assert not is_overwritten("aten::copy.default", "0")
    assert is_overwritten("aten::mul.out", "kwargs.out")
    assert is_overwritten("c10d::_allgather_base_", "0")
    assert not is_overwritten("aten::masked_fill_.Scalar", "0")
    assert (element_of("1.3"), element_of("1"), element_of("kwargs.3")) == (3, None, None)


def test_arguments() -> None:
    text = (
        '{"args": [{"tensor": "0"}, 2, true, [1, {"float": "-inf"}]], "kwargs": {"alpha": 0.5, '
        '"dtype": {"dtype": "float16"}}}'
    )
    found = parse_arguments(text)
    assert found.scalars == (("1", 2), ("3.0", 1), ("3.1", -math.inf), ("kwargs.alpha", 0.5))
    assert found.dtypes == (("kwargs.dtype", "float16"),)
    assert found.places_negative_infinity
    assert not found.places_positive_infinity
    assert found.element(0).scalars == (("1", 2), ("3", 1), ("kwargs.alpha", 0.5))
    for broken in (None, "", "[", "7", '{"args": 3, "kwargs": []}', "[" * 100000):
        assert parse_arguments(broken).scalars == ()


def test_limits() -> None:
    assert (largest_finite("float16"), overflow_threshold("float16")) == (65504.0, 65520.0)
    assert (largest_finite("Float8E4M3FN"), overflow_threshold("float8_e4m3fn")) == (448.0, 464.0)
    assert overflow_threshold("bfloat16") == 3.3961775292304601e38
    assert (largest_finite("int8"), largest_finite("nonsense"), overflow_threshold("int8")) == (
        None,
        None,
        None,
    )
    assert (integer_range("int8"), integer_range("uint16"), integer_range("bool")) == (
        (-128, 127),
        (0, 65535),
        None,
    )
