# SPDX-License-Identifier: Apache-2.0
"""HiFloat8, the 8-bit float of Ascend with a tapered exponent: codes <-> numbers.

A code is a sign bit, a prefix that says how many exponent bits D follow, the exponent (its first
bit is its sign, the rest has an implicit leading one) and the mantissa (implicit leading one,
except with the prefix 0000):

    prefix  D  mantissa bits  exponents
    11      4  1              -15..-8, 8..15
    10      3  2              -7..-4, 4..7
    01      2  3              -3..-2, 2..3
    001     1  3              -1, 1
    0001    0  3              0
    0000    -  3              value = m * 0 for m = 0, else 2**(m - 23)

0x00 is zero, 0x80 NaN, 0x6F and 0xEF the infinities; the largest finite number is 32768. Source:
the decoder in the CANN runtime, with which all 256 codes were compared (specification of the CANN
dump formats).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from opscope.arrays import Array, Bytes

ZERO, NAN, INF, MINUS_INF = 0x00, 0x80, 0x6F, 0xEF
_PREFIXES = (
    (0x60, 0x60, 4, 1),
    (0x60, 0x40, 3, 2),
    (0x60, 0x20, 2, 3),
    (0x70, 0x10, 1, 3),
    (0x78, 0x08, 0, 3),
)


def _exponent(bits: int, width: int) -> int:
    """Value of an exponent field: sign bit, then the magnitude behind an implicit one."""
    if width == 0:
        return 0
    magnitude = 1 << (width - 1) | bits & ((1 << (width - 1)) - 1)
    return -magnitude if bits >> (width - 1) else magnitude


def _value(code: int) -> float:
    if code in (ZERO, NAN, INF, MINUS_INF):
        return {ZERO: 0.0, NAN: float("nan"), INF: float("inf"), MINUS_INF: -float("inf")}[code]
    sign = -1.0 if code & 0x80 else 1.0
    for mask, prefix, width, mantissa in _PREFIXES:
        if code & mask == prefix:
            exponent = _exponent(code >> mantissa & ((1 << width) - 1), width)
            return float(
                sign * 2.0**exponent * (1 + (code & ((1 << mantissa) - 1)) / (1 << mantissa))
            )
    return float(sign * 2.0 ** ((code & 7) - 23))


def _table() -> NDArray[np.float32]:
    values = np.array([_value(code) for code in range(256)], np.float32)
    values.flags.writeable = False
    return values


TABLE = _table()
"""The 256 numbers, by code; float32 holds each exactly."""


def decode(codes: Bytes) -> NDArray[np.float32]:
    """Numbers of the codes, in the shape of codes."""
    return TABLE[codes]


def encode(values: Array) -> Bytes:
    """Nearest codes of numbers (ties to the even code), NaN to 0x80; magnitudes from 40960 up
    become infinite.

    An inverse of decode for every number the format holds; hardware may round ties away from zero.
    """
    x = np.asarray(values, np.float64)
    finite = [code for code in range(128) if code != INF]
    order = np.array(sorted(finite, key=_value), np.uint8)
    numbers = TABLE[order].astype(np.float64)
    bounds = np.append((numbers[1:] + numbers[:-1]) / 2, 40960.0)
    magnitude = np.abs(np.nan_to_num(x, nan=0.0, posinf=np.inf, neginf=-np.inf))
    at = np.searchsorted(bounds, magnitude, side="left")
    tie = (at < len(numbers)) & (magnitude == bounds[np.minimum(at, len(bounds) - 1)])
    even = order[np.minimum(at, len(order) - 1)] % 2 == 0
    at = np.where(tie & ~even, at + 1, at)
    codes = np.where(at < len(order), order[np.minimum(at, len(order) - 1)], np.uint8(INF)).astype(
        np.uint8
    )
    codes = np.where((x < 0) & (codes != ZERO), codes | np.uint8(0x80), codes)
    return np.where(np.isnan(x), np.uint8(NAN), codes).astype(np.uint8)
