# SPDX-License-Identifier: Apache-2.0
"""Ranges of the element types: largest finite value of the floating ones, both ends of the integer
ones.
"""

from __future__ import annotations

from functools import lru_cache

from opscope.run.dtypes import find_dtype

# IEEE 754 for the first four; OCP 8-bit Floating Point Specification 1.0 for e4m3fn and e5m2;
# Graphcore/AMD for *fnuz; HiFloat8: Ascend's published table (largest finite value 2^15).
_LARGEST = {
    "float64": 1.7976931348623157e308,
    "float32": 3.4028234663852886e38,
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float8_e4m3fn": 448.0,
    "float8_e5m2": 57344.0,
    "float8_e4m3fnuz": 240.0,
    "float8_e5m2fnuz": 57344.0,
    "float8_e4m3b11fnuz": 30.0,
    "float8_e4m3": 240.0,
    "float8_e3m4": 15.5,
    "hifloat8": 32768.0,
    "complex128": 1.7976931348623157e308,
    "complex64": 3.4028234663852886e38,
    "complex32": 65504.0,
}

# Digits of the significand, the hidden one included: a result rounds to infinity from half a step
# beyond the largest value.
_DIGITS = {
    "float64": 53,
    "float32": 24,
    "float16": 11,
    "bfloat16": 8,
    "float8_e4m3fn": 4,
    "float8_e5m2": 3,
    "float8_e4m3fnuz": 4,
    "float8_e5m2fnuz": 3,
    "float8_e4m3b11fnuz": 4,
    "float8_e4m3": 4,
    "float8_e3m4": 5,
}

# Types so narrow that values near their limit are an early warning.
NARROW = frozenset(
    name
    for name, largest in _LARGEST.items()
    if largest <= 65504.0 and not name.startswith("complex")
)


@lru_cache(maxsize=256)
def largest_finite(dtype: str) -> float | None:
    """Largest finite value of a floating or complex type (of a component); None for any other."""
    known = find_dtype(dtype)
    return None if known is None else _LARGEST.get(known.name)


@lru_cache(maxsize=256)
def overflow_threshold(dtype: str) -> float | None:
    """Smallest magnitude that rounds to infinity (65520 for float16): the largest value and half a
    step; None for integers.
    """
    known = find_dtype(dtype)
    if known is None or known.name not in _LARGEST:
        return None
    largest, digits = _LARGEST[known.name], _DIGITS.get(known.name)
    if digits is None:
        return largest
    step = 2.0 ** (1 - digits)
    mantissa = largest
    while mantissa >= 2.0:
        mantissa /= 2.0
        step *= 2.0
    return largest + step / 2.0


@lru_cache(maxsize=256)
def integer_range(dtype: str) -> tuple[int, int] | None:
    """Smallest and largest value of an integer type; None for any other, bool included."""
    known = find_dtype(dtype)
    if known is None:
        return None
    if known.kind == "int":
        return -(2 ** (known.bits - 1)), 2 ** (known.bits - 1) - 1
    return (0, 2**known.bits - 1) if known.kind == "uint" else None


def is_float(dtype: str) -> bool:
    """Whether the type can hold NaN or infinity."""
    return largest_finite(dtype) is not None


def is_unsigned(dtype: str) -> bool:
    """Whether the type is an unsigned integer."""
    known = find_dtype(dtype)
    return known is not None and known.kind == "uint"
