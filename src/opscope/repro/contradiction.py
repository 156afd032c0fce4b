# SPDX-License-Identifier: Apache-2.0
"""Whether saved values are those that the statistics of their row tell of: memory may have been
written unseen in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opscope.kernels import statistics

if TYPE_CHECKING:
    from opscope.arrays import Array
    from opscope.run.schema import Tensor

COUNTS = {
    "nan": "NaN",
    "pos_inf": "+Inf",
    "neg_inf": "-Inf",
    "zero": "zeros",
    "neg": "negative elements",
    "pos": "positive elements",
}
INTEGERS = {"min_int": "smallest", "max_int": "largest"}
MOMENTS = {"min": "smallest", "max": "largest", "mean": "mean", "l2norm": "norm"}
CLOSE = 1e-3  # an accelerator sums in float32


def contradiction(row: Tensor, values: Array) -> str | None:
    """How values contradict the statistics of the row they were stored for, in words; None where
    they do not.

    A digest that is the same decides; one that is not, or any other statistic that both have,
    contradicts: counts and integers where they differ at all, the rest beyond 0.001 of the largest
    magnitude. Values of other tools are in types and by rules of their own: what is held against
    them is the caller's choice.
    """
    try:
        held = statistics(values)
    except TypeError:
        return None  # no numbers
    if row.digest is not None and row.digest == held.digest:
        return None
    for name, words in (COUNTS | INTEGERS).items():
        mine, told = getattr(held, name), getattr(row, name)
        if mine is not None and told is not None and mine != told:
            return f"{words}: {mine}" if name in INTEGERS else f"{mine} {words}"
    largest = max(
        abs(bound) for bound in (row.min or 0.0, row.max or 0.0, held.min or 0.0, held.max or 0.0)
    )
    for name, words in MOMENTS.items():
        mine, told = getattr(held, name), getattr(row, name)
        reach = CLOSE * max(largest, abs(told or 0.0))
        if mine is not None and told is not None and not abs(mine - told) <= reach:
            return f"{words}: {mine:.6g}"
    return "other bits" if row.digest is not None and held.digest is not None else None
