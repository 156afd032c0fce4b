# SPDX-License-Identifier: Apache-2.0
"""Floats that NumPy has no type of, bfloat16 and the eight-bit ones: their bits, under a type that
names them.

Such an array has a dtype of two fields, the bits under the format's name and an empty one, so that
NumPy refuses to calculate with it. (The elements of a structure of one field it takes for numbers:
cast to float32, the bits of 1.0 are 16256.) Reshaping, indexing, joining, viewing and copying move
bits and work as ever; `widened` gives the numbers. NumPy still compares two such arrays with ==,
bit by bit, and casts to such a type by cutting numbers off: as_type and narrowed round them.

ml_dtypes' arrays of these formats are taken wherever ours are.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import numpy as np

from opscope.arrays import Array, Floats, Ints, Words

_EMPTY = "no_number"  # the second field


class Limits(msgspec.Struct, frozen=True):
    """The ends of a floating type: its largest finite number, its smallest normal and smallest
    positive one, and how far the number after 1 is from it.
    """

    largest: float
    smallest_normal: float
    smallest: float
    eps: float


class Format(msgspec.Struct, frozen=True):
    """How a float lies in its bits: sign, exponent, mantissa from the top; rule says which codes
    are no finite numbers.

    ieee    those with all exponent bits set, as in IEEE 754: infinity without a mantissa, else NaN
    fn      finite, NaN: the code with all bits set is NaN, there is no infinity
    fnuz    finite, NaN, unsigned zero: the code that would be -0 is NaN, there is no infinity
    scale   no sign, no mantissa and no zero; the code with all bits set is NaN
    """

    exponent: int
    mantissa: int
    bias: int
    rule: str

    @property
    def signed(self) -> bool:
        return self.rule != "scale"

    @property
    def sign(self) -> int:
        """The bit of the sign, which is also how many codes there are without it."""
        return 1 << (self.exponent + self.mantissa)

    @property
    def unsigned(self) -> np.dtype[Any]:
        """The unsigned integer that holds the bits."""
        return np.dtype(f"<u{(self.signed + self.exponent + self.mantissa) // 8}")

    @property
    def lowest(self) -> int:
        """The exponent of the smallest normal number."""
        return int(self.signed) - self.bias

    @property
    def last(self) -> int:
        """The code of the largest finite number."""
        beyond = {"ieee": 1 << self.mantissa, "fnuz": 0}.get(self.rule, 1)
        return self.sign - 1 - beyond

    @property
    def nan(self) -> int:
        """The code that NaN is rounded to, without its sign."""
        if self.rule == "ieee":
            return self.last + 1 + (1 << (self.mantissa - 1))
        return self.sign if self.rule == "fnuz" else self.last + 1

    @property
    def overflowed(self) -> int:
        """The code of what is beyond the largest finite number."""
        return self.last + 1 if self.rule == "ieee" else self.nan

    def limits(self) -> Limits:
        largest, eps = self.numbers(np.array([self.last])), 2.0**-self.mantissa
        normal = 2.0**self.lowest
        return Limits(float(largest[0]), normal, normal * eps, eps)

    def numbers(self, codes: Ints) -> Floats:
        """The finite numbers of codes without a sign."""
        power = codes >> self.mantissa
        fraction = codes & ((1 << self.mantissa) - 1)
        normal = (power > 0) | (not self.signed)
        power = np.maximum(power, int(self.signed)) - self.bias - self.mantissa
        return np.asarray(np.ldexp(fraction + (normal << self.mantissa), power), np.float64)

    def codes(self, numbers: Array) -> Words:
        """The codes nearest to NumPy's floats, of two as near the even one."""
        with np.errstate(all="ignore"):
            return self._nearest(numbers)

    def _nearest(self, numbers: Array) -> Words:
        finite = np.isfinite(numbers)
        size = np.where(finite, np.abs(numbers), 0)
        power = np.where(size > 0, np.frexp(size)[1].astype(np.int64) - 1, self.lowest)
        power = np.maximum(power, self.lowest)
        steps = np.rint(np.ldexp(size, self.mantissa - power)).astype(np.int64)
        codes = ((power - self.lowest) << self.mantissa) + steps
        if not self.signed:
            codes = np.maximum(codes - 1, 0)
            finite &= numbers > 0
        codes = np.where((codes > self.last) | np.isinf(numbers), self.overflowed, codes)
        codes = np.where(finite | np.isinf(numbers), codes, self.nan)
        if not self.signed:
            return np.asarray(np.where(finite, codes, self.nan), np.uint64)
        negative = np.signbit(numbers)
        if self.rule == "fnuz":
            negative &= (codes > 0) & (codes < self.sign)
        return np.asarray(codes + np.where(negative, self.sign, 0), np.uint64)


FORMATS = {
    # The upper half of an IEEE 754 binary32: "A Study of BFLOAT16 for Deep Learning Training",
    # Kalamkar et al., arXiv:1905.12322
    "bfloat16": Format(8, 7, 127, "ieee"),
    # "OCP 8-bit Floating Point Specification (OFP8)", revision 1.0
    "float8_e4m3fn": Format(4, 3, 7, "fn"),
    "float8_e5m2": Format(5, 2, 15, "ieee"),
    # "8-bit Numerical Formats for Deep Neural Networks", Noune et al., arXiv:2206.02915
    "float8_e4m3fnuz": Format(4, 3, 8, "fnuz"),
    "float8_e5m2fnuz": Format(5, 2, 16, "fnuz"),
    # The same with a bias of 11, as LLVM defines it (APFloat.h, Float8E4M3B11FNUZ)
    "float8_e4m3b11fnuz": Format(4, 3, 11, "fnuz"),
    # What IEEE 754 makes of other widths (clause 3.4)
    "float8_e4m3": Format(4, 3, 7, "ieee"),
    "float8_e3m4": Format(3, 4, 3, "ieee"),
    # "OCP Microscaling Formats (MX) Specification", version 1.0: E8M0
    "float8_e8m0fnu": Format(8, 0, 127, "scale"),
}


@cache
def dtype(name: str) -> np.dtype[Any]:
    """The type of arrays of this format; KeyError for another name."""
    return np.dtype([(name, FORMATS[name].unsigned), (_EMPTY, "V0")])


def numpy_type(name: str) -> np.dtype[Any]:
    """The type of this name, ours or NumPy's; TypeError where there is none."""
    return dtype(name) if name in FORMATS else np.dtype(name)


def name_of(elements: np.dtype[Any]) -> str:
    """The name of a type: of ours and of ml_dtypes' that of the format, else NumPy's."""
    names = elements.names
    if names and names[0] in FORMATS and elements == dtype(names[0]):
        return names[0]
    return elements.name


def is_narrow(elements: np.dtype[Any]) -> bool:
    """Whether this is a type of one of the formats, ours or ml_dtypes'."""
    return name_of(elements) in FORMATS


def limits(elements: np.dtype[Any]) -> Limits:
    """Those of a format or of a floating type of NumPy; ValueError for other types."""
    if is_narrow(elements):
        return FORMATS[name_of(elements)].limits()
    known = np.finfo(elements)
    return Limits(
        *map(float, (known.max, known.smallest_normal, known.smallest_subnormal, known.eps))
    )


def widened(array: Array) -> Array:
    """The numbers of a narrow array, ours or ml_dtypes', as float32, which holds them exactly; any
    other array as it is.
    """
    name = name_of(array.dtype)
    if name not in FORMATS:
        return array
    bits = array.view(FORMATS[name].unsigned)
    if name == "bfloat16":
        wide = np.left_shift(bits, np.uint32(16), dtype=np.uint32)
        return np.asarray(wide).view(np.float32)
    return np.asarray(_numbers(name).take(bits))


def narrowed(array: Array, name: str) -> Array:
    """Numbers rounded once to the nearest of a format, of two as near to the even one.

    What is beyond the largest finite number becomes infinity, or NaN where the format has none. NaN
    keeps its sign where the format has one.
    """
    numbers = np.asarray(widened(array))
    numbers = numbers.astype(np.result_type(numbers.dtype, np.float32), copy=False)
    if numbers.dtype != np.float32:
        codes: Array = FORMATS[name].codes(numbers)
    elif name == "bfloat16":
        codes = _upper_halves(numbers)
    else:
        codes = _codes(name).take(_odd_halves(numbers))
    return np.asarray(codes, FORMATS[name].unsigned).view(dtype(name))


def as_type(array: Array, elements: np.dtype[Any]) -> Array:
    """What astype gives, of the types that NumPy lacks too; as it is where it has the type."""
    name, own = name_of(elements), name_of(array.dtype)
    if name in FORMATS:
        return array.view(dtype(name)) if own == name else narrowed(array, name)
    return widened(array).astype(elements, copy=False)


@cache
def _numbers(name: str) -> Array:
    """The numbers of all codes of eight bits."""
    form = FORMATS[name]
    codes = np.arange(256)
    size = codes & (form.sign - 1)
    numbers = form.numbers(size)
    numbers[size > form.last] = np.nan
    if form.rule == "ieee":
        numbers[size == form.overflowed] = np.inf
    numbers = np.copysign(numbers, np.where(codes & form.sign, -1.0, 1.0))
    if form.rule == "fnuz":
        numbers[form.nan] = -np.nan
    return numbers.astype(np.float32)


@cache
def _codes(name: str) -> Array:
    """The codes of eight bits of all numbers of bfloat16."""
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype("bfloat16"))
    form = FORMATS[name]
    return form.codes(widened(every)).astype(form.unsigned)


def _odd_halves(numbers: Array) -> Array:
    """The upper halves of float32 numbers, odd where bits are cut off: so no number comes to lie
    halfway between two of eight bits that did not, and what is rounded of these is rounded once.
    """
    bits = numbers.view(np.uint32)
    return np.asarray((bits >> np.uint32(16)) | ((bits & np.uint32(0xFFFF)) != 0))


def _upper_halves(numbers: Array) -> Array:
    """The codes of bfloat16 nearest to float32 numbers: half of a last place is added, less the
    least where the place is even, and the lower half cut off.
    """
    bits = numbers.view(np.uint32)
    upper = bits >> np.uint32(16)
    with np.errstate(over="ignore"):  # of a single NaN with all bits set
        rounded = (bits + (np.uint32(0x7FFF) + (upper & np.uint32(1)))) >> np.uint32(16)
    quiet = upper & np.uint32(0x8000) | np.uint32(FORMATS["bfloat16"].nan)
    return np.where(np.isnan(numbers), quiet, rounded)
