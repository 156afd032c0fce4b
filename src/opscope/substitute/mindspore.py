# SPDX-License-Identifier: Apache-2.0
"""What a primitive of MindSpore gives by its definition: worked out in double precision by PyTorch,
which shares no kernel with MindSpore.

Of functions that are taken element by element, and of sorting. MindSpore's own float64 kernel may
hold the same fault as the one that is judged (Softplus takes the logarithm of 1 + exp(x) in every
type), and approximations of a back end are no excuse for what its float32 gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import torch

from opscope.arrays import Array
from opscope.judge.families import tolerance_kind
from opscope.judge.replayed import ROUNDOFF, Replayed, Sides, Terms, judge_output
from opscope.judge.tolerance import ONCE, one_side
from opscope.substitute.kernels import ELEMENTWISE, sort

# Times the tolerance: back ends take exponentials and logarithms by polynomials that are good to
# some 40 roundings (nnacl's Exp, measured over its whole range: 41).
EASE = 16


class TrueResult(msgspec.Struct, frozen=True):
    """The first result of a call of op by its definition, and what it changes by where each input
    changes by a rounding; axis is that of sorted values.
    """

    op: str
    true: Array
    slack: Array
    axis: int | None = None

    def judge(self, target: Array, *, dtype: str, own: Array | None = None) -> Replayed:
        """The verdict of what a kernel gave in this type; own is what a trusted one gives in it.

        Where operands cancel within a function (gelu, silu) an error counts beside the largest
        result, otherwise at its element.
        """
        true = self.true if self.axis is None else sorted_around(self.true, target, self.axis)
        sides = Sides(
            dtype=dtype,
            target=target,
            own=own,
            true=true,
            slack=self.slack,
            magnitude=None if tolerance_kind(self.op) == "composed" else np.abs(true),
            alone=EASE,
        )
        verdict = judge_output("0", sides, Terms(op=self.op))
        if verdict.verdict != "wrong":
            return verdict
        return msgspec.structs.replace(verdict, reason=f"{verdict.reason}: {HOW}")


HOW = "what it is by definition was worked out by PyTorch in double precision"


def definition(
    op: str, given: Sequence[Any], attributes: dict[str, Any], *, types: Sequence[str], result: str
) -> TrueResult | None:
    """The definition of the first result, of element type result; None where there is none for what
    the call was given: operands in order, arrays in double precision where they are floating ones.

    types are the tensors'.
    """
    function = sort if op == "Sort" else ELEMENTWISE.get(op)
    if function is None or not _speaks_of(op, types, result):
        return None
    operands = [torch.from_numpy(each) if isinstance(each, np.ndarray) else each for each in given]
    unit = min((ROUNDOFF[name] for name in (*types, result) if name in ROUNDOFF), default=0.0)

    def made(values: list[Any]) -> Array:
        array: Array = function(*values, **attributes).numpy()
        return array

    try:
        true = made(operands)
        slack = _slack(made, operands, true, unit=unit)
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError):
        return None  # operands of another kind than the definition is for
    return TrueResult(op, true, slack, int(attributes.get("axis", -1)) if op == "Sort" else None)


def _speaks_of(op: str, types: Sequence[str], result: str) -> bool:
    """Whether the definition holds for these types: of integers only where the result is one of
    them or a truth value.
    """
    floating = all(name in ROUNDOFF or name == "bool" for name in types)
    return (
        (floating and result in ROUNDOFF) or result == "bool" or one_side(op, "float32").own == ONCE
    )


def _slack(
    made: Callable[[list[Any]], Array], operands: list[Any], true: Array, *, unit: float
) -> Array:
    """What the result changes by where each floating operand changes by a rounding, either way."""
    total = np.zeros(true.shape)
    if true.dtype.kind != "f":
        return total
    for number, operand in enumerate(operands):
        if not (isinstance(operand, torch.Tensor) and operand.is_floating_point()):
            continue
        ways = [
            made([*operands[:number], operand * (1 + sign * unit), *operands[number + 1 :]])
            for sign in (1, -1)
        ]
        with np.errstate(all="ignore"):
            change = np.fmax(*(np.abs(each - true) for each in ways))
        total += np.where(np.isfinite(change), change, 0.0)
    return total


def sorted_around(values: Array, target: Array, axis: int) -> Array:
    """The sorted values (NaN last) with NaN where a kernel has put them, which no framework fixes:
    only the order of the others is judged. As they are where the numbers of NaN differ.
    """
    if values.dtype.kind != "f" or values.shape != target.shape:
        return values
    ordered, placed = np.moveaxis(values, axis, -1), np.isnan(np.moveaxis(target, axis, -1))
    if not np.array_equal(placed.sum(-1), np.isnan(ordered).sum(-1)):
        return values
    around = np.full(ordered.shape, np.nan)
    around[~placed] = ordered[~np.isnan(ordered)]  # row by row, as many in each
    return np.moveaxis(around, -1, axis)
