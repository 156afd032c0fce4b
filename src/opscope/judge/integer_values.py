# SPDX-License-Identifier: Apache-2.0
"""Integer overflow and negative-to-unsigned conversion decided from the values of a call's inputs,
exactly.

What cannot be decided exactly (large integer matrix products whose float64 estimate is within its
own error of the limit) is not accused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from opscope.judge.arguments import Arguments
from opscope.judge.limits import integer_range, is_unsigned
from opscope.narrow import widened
from opscope.operators.catalogue import family, traits_of

if TYPE_CHECKING:
    from opscope.arrays import Array


NEGATION, ARITHMETIC, UNSIGNED = 0x8, 0x10, 0x80
# Whether combined operands leave these bounds; the last is alpha, of what has one.
Check = Callable[[list[Any], tuple[int, int], int], bool]
_EXACT_ELEMENTS = 1 << 16  # up to here Python's own integers are fast enough


def integer_overflow(
    op: str, arguments: Arguments, arrays: Mapping[str, Array], *, dtype: str
) -> int:
    """Bits 0x8, 0x10 and 0x80 of one call.

    arrays: values of the tensor arguments by slot, as they were before the call, in their true
    types. dtype: element type of the result. 0 when the result is not of an integer type, or
    nothing left its range.
    """
    name = family(op).removeprefix("_foreach_")
    bounds = integer_range(dtype)
    if bounds is None or not arrays:
        return 0
    if traits_of(op).cast:
        return _cast_bits(name, arrays, dtype)
    operands = _operands(arguments, arrays)
    if operands is None or any(array.dtype.kind not in "iub" for array in operands):
        return 0
    if traits_of(op).negates:
        return NEGATION if bounds[0] and operands and np.any(operands[0] == bounds[0]) else 0
    check = _CHECKS.get(name)
    if check is None or len(operands) < (1 if name in ("square", "sum") else 2):
        return 0
    alpha = arguments.number("kwargs.alpha")
    return ARITHMETIC if check(operands, bounds, 1 if alpha is None else int(alpha)) else 0


def _cast_bits(name: str, arrays: Mapping[str, Array], dtype: str) -> int:
    """A float that truncates to a negative integer has no unsigned value."""
    source = arrays.get("1" if name == "copy" else "0")
    if source is None or not is_unsigned(dtype) or source.dtype.kind in "iub":
        return 0
    values = widened(source).astype(np.float64)
    return UNSIGNED if bool(np.any(values[np.isfinite(values)] <= -1.0)) else 0


def _operands(arguments: Arguments, arrays: Mapping[str, Array]) -> list[Array] | None:
    by_slot: dict[str, Array] = {
        slot: array for slot, array in arrays.items() if not slot.startswith("kwargs.")
    }
    for slot, value in arguments.scalars:
        if slot.startswith("kwargs.") or "." in slot:
            continue
        if isinstance(value, float) and not value.is_integer():
            return None
        by_slot[slot] = np.array(int(value), dtype=object if abs(int(value)) >= 2**63 else np.int64)
    if any(array.dtype == object for array in by_slot.values()):
        return None
    return [by_slot[slot] for slot in sorted(by_slot)]


def _wide(array: Array) -> Array:
    """As Python integers: exact whatever is done with them."""
    return array.astype(object)


def _outside(values: Array, bounds: tuple[int, int]) -> bool:
    return bool(np.any((values < bounds[0]) | (values > bounds[1])))


def _estimated(
    exact: Callable[[], Array],
    estimate: Callable[[], tuple[Array, float]],
    work: int,
    bounds: tuple[int, int],
) -> bool:
    """Decide exactly where that is cheap, else by a float64 estimate and the error it can have."""
    if work <= _EXACT_ELEMENTS:
        return _outside(exact(), bounds)
    value, error = estimate()
    return bool(np.any((value - error > bounds[1]) | (value + error < bounds[0])))


def _pair(a: Array, b: Array, bounds: tuple[int, int], combine: Callable[[Any, Any], Any]) -> bool:
    """a and b combined element by element: screened in float64, decided by Python's integers where
    the screen cannot.
    """
    with np.errstate(over="ignore"):
        rough = np.asarray(combine(a.astype(np.float64), b.astype(np.float64)))
    margin = (
        np.abs(rough) + np.abs(a.astype(np.float64)) + np.abs(b.astype(np.float64))
    ) * 2.0**-50
    if np.any((rough - margin > bounds[1]) | (rough + margin < bounds[0])):
        return True
    unsure = (rough + margin > bounds[1]) | (rough - margin < bounds[0])
    if not np.any(unsure):
        return False
    a, b = np.broadcast_arrays(a, b)
    return _outside(np.asarray(combine(_wide(a[unsure]), _wide(b[unsure])), dtype=object), bounds)


def _check_of(combine: Callable[[Any, Any, int], Any], *, second: int = 1) -> Check:
    """Of the first operand and another, combined element by element."""

    def check(operands: list[Array], bounds: tuple[int, int], alpha: int) -> bool:
        return _pair(operands[0], operands[second], bounds, lambda a, b: combine(a, b, alpha))

    return check


def _check_pow(operands: list[Array], bounds: tuple[int, int], alpha: int) -> bool:  # noqa: ARG001
    base, exponent = operands[0], operands[1]
    if np.any(exponent < 0):
        return False
    with np.errstate(over="ignore"):
        rough = np.abs(base.astype(np.float64)) ** exponent.astype(np.float64)
    if np.any(rough > 2.0 * max(bounds[1], -bounds[0])):
        return True
    a, b = np.broadcast_arrays(base, exponent)
    unsure = np.broadcast_to(rough * 2.0 > bounds[1], a.shape)
    return bool(np.any(unsure)) and _outside(
        np.asarray(_wide(a[unsure]) ** _wide(b[unsure]), dtype=object), bounds
    )


def _check_sum(operands: list[Array], bounds: tuple[int, int], alpha: int) -> bool:  # noqa: ARG001
    """A whole sum only; sums along a dimension are judged by the sum of each sign, which bounds
    them all.
    """
    values = operands[0].reshape(-1)
    high = (
        int(np.sum(_wide(values[values > 0])))
        if values.size <= _EXACT_ELEMENTS
        else float(np.sum(values[values > 0], dtype=np.float64))
    )
    low = (
        int(np.sum(_wide(values[values < 0])))
        if values.size <= _EXACT_ELEMENTS
        else float(np.sum(values[values < 0], dtype=np.float64))
    )
    if low >= bounds[0] and high <= bounds[1]:
        return False
    one_value_out = len(operands) == 1 and values.size <= _EXACT_ELEMENTS
    return one_value_out and not bounds[0] <= int(np.sum(_wide(values))) <= bounds[1]


def _check_matmul(operands: list[Array], bounds: tuple[int, int], alpha: int) -> bool:  # noqa: ARG001
    a, b = operands[0], operands[1]

    def estimate() -> tuple[Array, float]:
        fa, fb = a.astype(np.float64), b.astype(np.float64)
        size = float(np.max(np.abs(fa), initial=0.0) * np.max(np.abs(fb), initial=0.0))
        return np.asarray(fa @ fb), size * a.shape[-1] ** 2 * 2.0**-50

    work = a.size * (b.shape[-1] if b.ndim > 1 else 1)
    return _estimated(lambda: np.asarray(_wide(a) @ _wide(b), dtype=object), estimate, work, bounds)


_CHECKS: dict[str, Check] = {
    "add": _check_of(lambda a, b, alpha: a + alpha * b),
    "sub": _check_of(lambda a, b, alpha: a - alpha * b),
    "rsub": _check_of(lambda a, b, alpha: b - alpha * a),
    "mul": _check_of(lambda a, b, _: a * b),
    "square": _check_of(lambda a, b, _: a * b, second=0),
    "pow": _check_pow,
    "sum": _check_sum,
    "mm": _check_matmul,
    "bmm": _check_matmul,
    "matmul": _check_matmul,
    "mv": _check_matmul,
    "dot": _check_matmul,
}
