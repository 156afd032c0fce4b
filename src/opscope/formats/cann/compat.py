# SPDX-License-Identifier: Apache-2.0
"""What the reference converter does differently, and wrongly, for `--compat msaccucmp`.

HiFloat8    the 32 codes of each sign with D = 1 and D = 0 keep too many mantissa bits, 0xEF is
            +inf; float64
float8      0x7F and 0xFF of E4M3FN are +-480, 0xFC of E5M2 is +inf; float64
bfloat16    is widened to float32, in .bin files too, whose name still says bfloat16
.bin names  give the number of elements instead of the shape
FRACTAL_Z   written with groups, super-groups lie dc div 16 apart instead of C1; grouped ones cannot
            be read
FRACTAL_NZ  of more than two dimensions comes out with its batch dimensions in one
"""

from __future__ import annotations

from math import gcd, prod
from typing import TYPE_CHECKING

import numpy as np

from opscope.formats.cann.codes import Code, RefusedError
from opscope.narrow import widened

if TYPE_CHECKING:
    from opscope.arrays import Array, Bytes
    from opscope.formats.cann.dtypes import ElementType

_KNOWN = frozenset(
    (*range(13), 16, 17, 23, 27, 29, 33, 34, 35)
)  # element types the reference reads
_CUBE = 16


def elements(data: Bytes, kind: ElementType, count: int, decoded: Array) -> Array:
    """The elements as the reference gives them; decoded is what they really are."""
    if kind.proto not in _KNOWN:
        raise RefusedError(Code.DATA_TYPE, f"the reference tool does not read {kind.cann}")
    if kind.name == "hifloat8":
        return HIFLOAT8[data[:count]]
    if kind.name == "float8_e4m3fn":
        return E4M3FN[data[:count]]
    if kind.name == "float8_e5m2":
        return E5M2[data[:count]]
    return widened(decoded) if kind.name == "bfloat16" else decoded


def _hifloat8(code: int) -> float:
    if code in (0x00, 0x6F, 0x80, 0xEF):
        return {0x00: 0.0, 0x6F: np.inf, 0x80: np.nan, 0xEF: np.inf}[code]
    sign = -1.0 if code & 0x80 else 1.0
    top = code & 0x78
    if top == 0:
        return sign * 2.0 ** ((code & 7) - 23)
    width = (
        4 if top >= 0x60 else 3 if top >= 0x40 else 2 if top >= 0x20 else 1 if top >= 0x10 else 0
    )
    kept = 5 - width  # right for widths 4 to 2 only
    field = code >> kept & ((1 << width) - 1)
    exponent = 0
    if width:
        exponent = 1 << (width - 1) | field & ((1 << (width - 1)) - 1)
        exponent = -exponent if field >> (width - 1) else exponent
    return sign * 2.0**exponent * (1 + (code & ((1 << kept) - 1)) / (1 << kept))


def _minifloat(code: int, mantissa: int, bias: int) -> float:
    """An IEEE-like 8-bit float without special values."""
    sign = -1.0 if code & 0x80 else 1.0
    exponent, fraction = (code & 0x7F) >> mantissa, (code & ((1 << mantissa) - 1)) / (1 << mantissa)
    return (
        sign * fraction * 2.0 ** (1 - bias)
        if exponent == 0
        else sign * (1 + fraction) * 2.0 ** (exponent - bias)
    )


def _e5m2(code: int) -> float:
    if code & 0x7C == 0x7C:
        return np.nan if code & 3 else np.inf
    return _minifloat(code, 2, 15)


HIFLOAT8 = np.array([_hifloat8(code) for code in range(256)])
E4M3FN = np.array([_minifloat(code, 3, 7) for code in range(256)])
E5M2 = np.array([_e5m2(code) for code in range(256)])


def to_fractal_z(hwcn: Array, groups: int) -> Array:
    """A grouped weight in FRACTAL_Z as the reference writes it: C0 is 16, and super-groups
    overlap.
    """
    h, w, c, n = hwcn.shape
    groups = max(groups, 1)
    outputs = n // groups
    if not outputs or not c:
        raise RefusedError(
            Code.CONVERT_FUNCTION, f"a weight of shape {list(hwcn.shape)} has no {groups} groups"
        )
    first, second = _CUBE // gcd(c, _CUBE), _CUBE // gcd(outputs, _CUBE)
    side = min(first * second // gcd(first, second), groups)
    rows, tiles = -(-side * c // _CUBE), -(-side * outputs // _CUBE)
    out = np.zeros((-(-groups // side) * rows * h * w, tiles, _CUBE, _CUBE), hwcn.dtype)
    for group in range(groups):
        columns = np.arange(outputs) + group % side * outputs
        for channel in range(c):
            row = group % side * c + channel
            block = row // _CUBE
            start = (group // side * block + block) * h * w
            source = hwcn[:, :, channel, group * outputs : (group + 1) * outputs].reshape(
                h * w, outputs
            )
            out[start : start + h * w, columns // _CUBE, columns % _CUBE, row % _CUBE] = source
    return out


def flat_batch(values: Array) -> Array:
    """A matrix with batch dimensions as the reference gives FRACTAL_NZ: all of them in one."""
    return (
        values.reshape(prod(values.shape[:-2]), *values.shape[-2:]) if values.ndim > 2 else values
    )
