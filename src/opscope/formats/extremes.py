# SPDX-License-Identifier: Apache-2.0
"""What a Max, Min, Mean and Norm over all elements prove about our columns, which are over the
finite elements.

A NaN extreme proves one NaN at least and nothing of the finite elements: min and max stay null. An
infinite one proves one infinity of its sign and hides the finite extreme. Such counts are the least
there can be; they are 1 where the truth may be more. A finite Norm proves that every element is
finite, and so do finite extremes of PyTorch; only then do Mean and Norm mean what our columns mean.
"""

from __future__ import annotations

import math
from typing import Any

_INTEGERS = ("int", "uint", "bool", "qint", "quint")


def number(value: Any) -> float | None:
    """A number out of JSON or CSV, None for anything else; the words nan, inf and -inf are numbers
    too.
    """
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:
            return None
    if isinstance(value, str) and len(value) < 64:
        try:
            return float(value)
        except ValueError:
            return None
    return None


def proven(
    dtype: str,
    largest: Any,
    smallest: Any,
    mean: Any = None,
    norm: Any = None,
    *,
    torch: bool = False,
) -> dict[str, Any]:
    """Columns of table tensors that four statistics over all elements prove; dtype is our canonical
    name.

    torch: max and min are PyTorch's, which a NaN passes through; finite ones prove that every
    element is finite, and one that is none proves that there is no NaN, and no infinity but of its
    own sign.
    """
    top, bottom, average, length = number(largest), number(smallest), number(mean), number(norm)
    columns: dict[str, Any] = {}
    for value, column in ((top, "max"), (bottom, "min")):
        if value is None:
            continue
        if math.isfinite(value):
            columns[column] = value
        else:
            columns["nan" if math.isnan(value) else "pos_inf" if value > 0 else "neg_inf"] = 1
    integer = dtype.startswith(_INTEGERS)
    if not {"max", "min"} <= columns.keys() or "nan" in columns:
        if "nan" in columns:
            columns.pop("max", None)
            columns.pop("min", None)
        elif torch and top is not None and bottom is not None:
            # a NaN would be both, an infinity the extreme of its sign
            columns["nan"] = 0
            columns |= {"pos_inf": 0} if top < math.inf else {}
            columns |= {"neg_inf": 0} if bottom > -math.inf else {}
        return columns
    if torch or integer or (length is not None and math.isfinite(length)):
        columns |= {"nan": 0, "pos_inf": 0, "neg_inf": 0}
    if average is not None and math.isfinite(average):
        columns["mean"] = average
    if length is not None and math.isfinite(length):
        columns["l2norm"] = abs(length)  # msprobe writes a single number itself, sign and all
    if integer and dtype != "bool":
        columns |= {
            name: value
            for name, value in (("max_int", _exact(largest)), ("min_int", _exact(smallest)))
            if value is not None
        }
    return columns


def _exact(value: Any) -> int | None:
    """An integer extreme that was written exactly; older writers went through float32, which is
    exact below 2**24.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value if -(1 << 63) <= value < 1 << 63 else None
    real = number(value)
    return int(real) if real is not None and real.is_integer() and abs(real) < 1 << 24 else None
