# SPDX-License-Identifier: Apache-2.0
"""One pass over two arrays: every metric of how target differs from golden, by the compiled kernel
or by NumPy where it is missing.
"""

from __future__ import annotations

from types import ModuleType

import msgspec
import numpy as np

from opscope.arrays import Array
from opscope.kernels import compiled, pair_reference
from opscope.kernels.pair_reference import Pair, Sums
from opscope.narrow import name_of

__all__ = ["Pair", "measure", "pair"]


def pair(
    target: Array,
    golden: Array,
    *,
    threads: int = 1,
    kl: bool = False,
    allowed: tuple[float, float] = (0.0, 0.0),
) -> Pair:
    """Answers all metrics of two arrays of one shape, any strides, NumPy's numbers,
        ours of opscope.narrow and ml_dtypes'.

    Two types are compared in one that holds both. allowed is (absolute, relative) of Pair.beyond.
    kl asks for Pair.kl, which takes passes of its own. threads is the most that large arrays are
    spread over; the answer does not depend on it. The global interpreter lock is released
    meanwhile. Raises UsageError for shapes that differ and for elements that are no numbers.
    """
    one, other = pair_reference.common(target, golden)
    native = compiled.load() if name_of(one.dtype) in compiled.NUMBERS else None
    if native is None:
        measured = pair_reference.pair(target, golden, allowed=allowed)
    else:
        sums = measure(native, one, other, allowed=allowed, threads=threads)
        measured = pair_reference.metrics(sums, allowed, alike=pair_reference.alike(target, golden))
    return (
        msgspec.structs.replace(measured, kl=pair_reference.kl(target, golden)) if kl else measured
    )


def measure(
    native: ModuleType,
    target: Array,
    golden: Array,
    *,
    allowed: tuple[float, float] = (0.0, 0.0),
    threads: int = 1,
    isa: str = "auto",
) -> Sums:
    """The pass by the compiled kernel, over two arrays of one shape and type that has a number in
    compiled.NUMBERS.
    """
    target, golden = _steps_whole(target), _steps_whole(golden)
    sums = _once(native, (target, golden), allowed, (0, threads), isa)
    squares, few = sums.squares_target + sums.squares_golden, 2.0 * max(1, sums.compared)
    if target.dtype.name in ("float64", "complex128") and not few * 2.0**-959 < squares < 2.0**959:
        exponent = pair_reference.exponent_of(target, golden)
        sums = (
            _once(native, (target, golden), allowed, (exponent, threads), isa) if exponent else sums
        )
    return sums


def _once(
    native: ModuleType,
    arrays: tuple[Array, Array],
    allowed: tuple[float, float],
    settings: tuple[int, int],
    isa: str,
) -> Sums:
    item = arrays[0].itemsize
    places = [(array.ctypes.data, [stride // item for stride in array.strides]) for array in arrays]
    number = compiled.NUMBERS[name_of(arrays[0].dtype)]
    return Sums(*native.pair(*places, number, list(arrays[0].shape), (*allowed, *settings), isa))


def _steps_whole(array: Array) -> Array:
    """The array, copied where its strides are no multiples of its elements."""
    return (
        np.ascontiguousarray(array)
        if any(stride % array.itemsize for stride in array.strides)
        else array
    )
