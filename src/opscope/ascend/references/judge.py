# SPDX-License-Identifier: Apache-2.0
"""Whether what the device wrote is what the operator computes.

Tolerances are wide, since devices compute matrix products in fewer bits and approximate functions:
a difference that is told is one. Up to one element in a thousand may be off. Indices of equal
values may differ, so they are not judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import compute
from .table import Inapplicable

AGREES, DIFFERS, CANNOT = "agrees", "differs", "cannot"
_RELATIVE = {"float16": 5e-3, "bfloat16": 2e-2, "float32": 2e-3, "float64": 1e-6}
# of the largest value: below it the error of cancellation counts, not that of the element
_SMALL = 0.1
_SHARE = 1e-3
_LARGEST = {"float16": 65504.0}
_NOT_JUDGED = ("ArgMax", "ArgMin", "TopK", "Shape", "Dropout", "Random")


class Judged(NamedTuple):
    """The answer: agrees, differs or cannot, one sentence, and for each output how many elements
    are off and the largest error.
    """

    status: str
    text: str
    outputs: tuple[tuple[int, int, float], ...] = ()


def judge(
    op_type: str,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    attributes: Mapping[str, Any],
    dtypes: Sequence[str],
) -> Judged:
    """Compares the device's outputs, whose element types are dtypes, with the reference's."""
    if op_type.startswith(_NOT_JUDGED):
        return Judged(CANNOT, f"outputs of {op_type} are not judged")
    try:
        expected = compute(op_type, inputs, attributes)
    except KeyError:
        return Judged(CANNOT, f"there is no CPU reference for {op_type}")
    except Inapplicable as error:
        return Judged(CANNOT, f"the CPU reference does not apply: {error}")
    compared: list[tuple[int, int, float, int]] = []
    for number, (got, computed, dtype) in enumerate(zip(outputs, expected, dtypes, strict=False)):
        if got is None:
            continue
        wanted = np.asarray(computed)
        if got.size != wanted.size:
            return Judged(
                CANNOT, f"output {number} has {got.size} elements, the reference {wanted.size}"
            )
        compared.append((number, *_off(got.reshape(-1), wanted.reshape(-1), dtype), got.size))
    wrong = [output for output in compared if output[1] > _SHARE * output[3]]
    rows = tuple(output[:3] for output in compared)
    if not compared:
        return Judged(CANNOT, "no output was dumped")
    if not wrong:
        return Judged(AGREES, "the device's outputs are those of the CPU reference", rows)
    number, off, largest, size = wrong[0]
    return Judged(
        DIFFERS,
        f"output {number} differs from the CPU reference in {off} of {size} elements, by up to "
        f"{largest:.3g}",
        rows,
    )


def _off(got: Any, wanted: Any, dtype: str) -> tuple[int, float]:
    """How many elements are off, and the largest finite error."""
    if got.dtype.kind in "iub":
        off = got.astype(np.float64) != np.asarray(wanted, np.float64)
        return int(np.count_nonzero(off)), float(
            np.max(np.abs(got.astype(np.float64) - np.asarray(wanted, np.float64)), initial=0)
        )
    got, wanted = got.astype(np.float64), np.asarray(wanted, np.float64)
    largest = _LARGEST.get(dtype)
    beyond = np.abs(wanted) > largest if largest is not None else np.zeros(wanted.shape, bool)
    fine = np.isfinite(got) & np.isfinite(wanted)
    scale = float(np.max(np.abs(wanted[fine]), initial=0))
    relative = _RELATIVE.get(dtype, 2e-2)
    with np.errstate(all="ignore"):
        error = np.abs(got - wanted)
        off = np.where(
            fine, error > relative * np.maximum(np.abs(wanted), _SMALL * scale), got != wanted
        )
        off &= ~(np.isnan(got) & np.isnan(wanted))
        # what leaves the range is Inf, or the largest number where the device saturates
        if largest is not None:
            off &= ~(beyond & (np.abs(got) >= largest))
    return int(np.count_nonzero(off)), float(np.max(error[fine], initial=0))
