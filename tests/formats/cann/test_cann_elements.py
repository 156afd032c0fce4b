# SPDX-License-Identifier: Apache-2.0
"""Element types: numbers to names, bytes to elements and back, HiFloat8 against its definition."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope import narrow
from opscope.errors import MissingValueError
from opscope.formats import hifloat8
from opscope.formats.cann import dtypes, elements
from opscope.formats.cann.dtypes import BY_NAME, element_type

READABLE = [kind for kind in dtypes.TYPES if kind.bits and kind.name != "bool"]
OPAQUE = [kind for kind in dtypes.TYPES if not kind.bits]
WRITABLE = [kind for kind in READABLE if kind.name not in ("float4_e2m1", "hifloat8")]


def test_the_numbers_of_the_two_enumerations_are_one_to_one() -> None:
    assert [kind.proto for kind in sorted(dtypes.TYPES, key=lambda kind: kind.proto)] == list(
        range(43)
    )
    assert sorted(kind.ge for kind in dtypes.TYPES) == [n for n in range(44) if n != 5]
    assert [dtypes.from_ge(dtypes.to_ge(n)) for n in range(43)] == list(range(43))
    assert dtypes.to_ge(dtypes.from_ge(12345)) == 12345


@pytest.mark.parametrize(
    ("proto", "ge", "name"),
    [
        (1, 0, "float32"),
        (2, 1, "float16"),
        (7, 3, "int32"),
        (12, 11, "float64"),
        (27, 27, "bfloat16"),
        (28, 29, "int4"),
        (33, 34, "hifloat8"),
    ],
)
def test_some_numbers_of_the_published_table(proto: int, ge: int, name: str) -> None:
    assert element_type(proto).name == name
    assert dtypes.from_ge(ge) == proto


def test_format_names() -> None:
    named = {
        0: "NCHW",
        2: "ND",
        3: "NC1HWC0",
        4: "FRACTAL_Z",
        25: "C1HWNCoC0",
        29: "FRACTAL_NZ",
        33: "FRACTAL_Z_3D",
        47: "NCL",
        49: "C1HWC0",
        255: "MAX",
    }
    assert {number: dtypes.format_name(number) for number in named} == named
    assert dtypes.format_name(99) == "FORMAT_99"
    assert dtypes.format_name(-1) == "FORMAT_-1"


@pytest.mark.parametrize("kind", WRITABLE, ids=lambda kind: kind.cann)
@given(data=st.binary(min_size=32, max_size=32))
def test_bits_survive(kind: dtypes.ElementType, data: bytes) -> None:
    raw = np.frombuffer(data, np.uint8)
    count = kind.fit(len(data))
    values = elements.decode(raw, kind, count)
    assert values.shape == (count,)
    if kind.name == "complex32":  # NaN payloads do not survive a change of width
        np.testing.assert_array_equal(
            values.view(np.float32), raw.view(np.float16).astype(np.float32)
        )
        return
    assert elements.encode(values, kind).tobytes() == data


def test_packed_types_bit_by_bit() -> None:
    raw = np.array([0b1001_0111, 0b1000_0001], np.uint8)
    assert elements.decode(raw, BY_NAME["int4"], 4).tolist() == [7, -7, 1, -8]
    assert elements.decode(raw, BY_NAME["int4"], 3).tolist() == [7, -7, 1]
    assert elements.decode(raw, BY_NAME["int2"], 8).tolist() == [-1, 1, 1, -2, 1, 0, 0, -2]
    assert elements.decode(raw, BY_NAME["uint2"], 5).tolist() == [3, 1, 1, 2, 1]
    assert elements.decode(raw, BY_NAME["uint1"], 9).tolist() == [1, 0, 0, 1, 0, 1, 1, 1, 1]


def test_float4_codes_are_those_of_ml_dtypes() -> None:
    raw = np.array([low | (low + 1) << 4 for low in range(0, 16, 2)], np.uint8)
    expected = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    np.testing.assert_array_equal(elements.decode(raw, BY_NAME["float4_e2m1"], 16), expected)


def test_any_byte_but_zero_is_true() -> None:
    values = elements.decode(np.array([0, 1, 2, 255], np.uint8), BY_NAME["bool"], 4)
    assert values.dtype == np.bool_
    assert values.view(np.uint8).tolist() == [0, 1, 1, 1]


def test_true_types_are_kept_without_a_copy() -> None:
    raw = np.array([0x80, 0x3F, 0x00, 0xC0], np.uint8)
    values = elements.decode(raw, BY_NAME["bfloat16"], 2)
    assert values.dtype == narrow.dtype("bfloat16")
    assert narrow.widened(values).tolist() == [1.0, -2.0]
    assert np.shares_memory(values, raw)
    assert elements.decode(raw, BY_NAME["float8_e4m3fn"], 4).dtype == narrow.dtype("float8_e4m3fn")


@pytest.mark.parametrize("kind", OPAQUE, ids=lambda kind: kind.cann)
def test_types_nobody_described_are_refused(kind: dtypes.ElementType) -> None:
    with pytest.raises(MissingValueError, match=kind.cann):
        elements.decode(np.zeros(8, np.uint8), kind, 4)


def hifloat8_value(code: int) -> float:
    """HiFloat8 read off its table as text: sign, prefix, exponent, mantissa bit by bit."""
    special = {0: 0.0, 0x80: float("nan"), 0x6F: float("inf"), 0xEF: float("-inf")}
    if code in special:
        return special[code]
    bits = f"{code:08b}"
    sign = -1 if bits[0] == "1" else 1
    for prefix, width in (("11", 4), ("10", 3), ("01", 2), ("001", 1), ("0001", 0)):
        if bits[1:].startswith(prefix):
            rest = bits[1 + len(prefix) :]
            field, mantissa = rest[:width], rest[width:]
            exponent = 0 if not field else int("1" + field[1:], 2) * (-1 if field[0] == "1" else 1)
            return sign * 2.0**exponent * (1 + int(mantissa, 2) / 2 ** len(mantissa))
    return sign * 2.0 ** (int(bits[5:], 2) - 23)


def test_hifloat8_is_its_table() -> None:
    expected = np.array([hifloat8_value(code) for code in range(256)], np.float32)
    np.testing.assert_array_equal(hifloat8.decode(np.arange(256, dtype=np.uint8)), expected)
    finite = expected[np.isfinite(expected)]
    assert finite.max() == 32768.0
    assert np.unique(expected[~np.isnan(expected)]).size == 255


# Codes whose value the specification spells out, those the reference tool reads wrongly among them.
@pytest.mark.parametrize(
    ("code", "value"),
    [
        (0x08, 1.0),
        (0x10, 2.0),
        (0x6E, 32768.0),
        (0x01, 2.0**-22),
        (0x07, 2.0**-16),
        (0x7E, 2.0**-15),
        (0xEF, float("-inf")),
    ],
)
def test_hifloat8_codes(code: int, value: float) -> None:
    assert hifloat8.TABLE[code] == value


def test_hifloat8_encode_is_the_inverse_of_decode() -> None:
    codes = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(hifloat8.encode(hifloat8.decode(codes)), codes)


@given(st.floats(width=32))
def test_hifloat8_encode_gives_a_nearest_number(value: float) -> None:
    code = hifloat8.encode(np.array([value]))
    number = float(hifloat8.decode(code)[0])
    if np.isnan(value):
        assert np.isnan(number)
    elif abs(value) < 40960:
        finite = hifloat8.TABLE[np.isfinite(hifloat8.TABLE)].astype(np.float64)
        assert abs(number - value) == np.abs(finite - value).min()
    else:
        assert number == np.copysign(np.inf, value) or abs(value) == 40960
