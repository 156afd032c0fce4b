# SPDX-License-Identifier: Apache-2.0
"""What the rules see of one tensor of a call: the statistics columns of its row. schema.Tensor is a
Reading.
"""

from __future__ import annotations

from typing import Protocol

from opscope.judge.limits import integer_range, largest_finite


class Reading(Protocol):
    """Slot, type, and the statistics of table tensors; counts are null when the values were not
    read.
    """

    @property
    def slot(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def size(self) -> int | None: ...
    @property
    def nan(self) -> int | None: ...
    @property
    def pos_inf(self) -> int | None: ...
    @property
    def neg_inf(self) -> int | None: ...
    @property
    def zero(self) -> int | None: ...
    @property
    def neg(self) -> int | None: ...
    @property
    def min(self) -> float | None: ...
    @property
    def max(self) -> float | None: ...
    @property
    def min_int(self) -> int | None: ...
    @property
    def max_int(self) -> int | None: ...


def is_read(reading: Reading) -> bool:
    """Whether its statistics are known; an integer tensor needs none to be sound."""
    return (
        reading.nan is not None
        or integer_range(reading.dtype) is not None
        or reading.dtype == "bool"
        or reading.size == 0
    )


def is_finite(reading: Reading) -> bool:
    """Whether it was read and holds neither NaN nor an infinity."""
    return not (reading.nan or reading.pos_inf or reading.neg_inf) and is_read(reading)


def holds_lowest(reading: Reading) -> bool:
    """Whether its smallest finite element is the lowest finite value of its type: a mask without
    infinities.
    """
    largest = largest_finite(reading.dtype)
    return largest is not None and reading.min is not None and reading.min == -largest


def magnitude(reading: Reading) -> float | None:
    """Largest absolute finite value; None when there is none or it was not read."""
    if reading.min is None or reading.max is None:
        return None
    return max(abs(reading.min), abs(reading.max))


def extremes(reading: Reading) -> tuple[int, int] | None:
    """Exact smallest and largest element of an integer tensor; None when they are not known."""
    if integer_range(reading.dtype) is None:
        return None
    if reading.min_int is not None and reading.max_int is not None:
        return reading.min_int, reading.max_int
    exact = 2.0**53
    if (
        reading.min is None
        or reading.max is None
        or max(abs(reading.min), abs(reading.max)) > exact
    ):
        return None
    return int(reading.min), int(reading.max)
