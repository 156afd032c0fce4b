# SPDX-License-Identifier: Apache-2.0
"""An excerpt of a tensor's elements: its corners, and where what is not finite begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from opscope.arrays import Array
from opscope.narrow import widened

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_PLACES = 3
MAX_LINES = 16
MAX_ELEMENTS = 1000


def excerpt(array: Array) -> list[str]:
    """Lines with the corners of an array, then the first places of nan, inf and -inf."""
    shown = _widened(array)
    options: dict[str, Any] = {
        "threshold": 60,
        "edgeitems": 3 if shown.ndim < 3 else 1,
        "precision": 4,
        "max_line_width": 76,
    }
    lines = [text for text in np.array2string(shown, **options).splitlines() if text.strip()]
    if len(lines) > MAX_LINES:
        lines = [*lines[: MAX_LINES // 2], "…", *lines[-MAX_LINES // 2 :]]
    if shown.dtype.kind not in "fc":
        return lines
    finds = (
        (("nan", np.isnan), ("inf", np.isposinf), ("-inf", np.isneginf))
        if shown.dtype.kind == "f"
        else (("nan", np.isnan), ("inf", np.isinf))
    )
    for word, test in finds:
        places = np.flatnonzero(test(shown))
        if places.size:
            lines.append(f"{word} at {_indices(places, shown.shape)}")
    return lines


def elements(array: Array) -> dict[str, Any]:
    """The first elements in C order, as builtins, and how many there are."""
    flat = _widened(array).reshape(-1)[:MAX_ELEMENTS]
    return {"size": int(array.size), "elements": [_builtin(element) for element in flat.tolist()]}


def _widened(array: Array) -> Array:
    """Types that NumPy does not have as float32, which holds all of their values."""
    wide = widened(array)
    return wide.astype(np.float32) if wide.dtype.kind == "V" else wide


def _builtin(element: Any) -> Any:
    return [element.real, element.imag] if isinstance(element, complex) else element


def _indices(places: Array, shape: Sequence[int]) -> str:
    first = [
        tuple(int(axis) for axis in np.unravel_index(int(number), shape))
        for number in places[:MAX_PLACES]
    ]
    more = f" and {places.size - len(first)} more" if places.size > len(first) else ""
    return ", ".join(str(list(number)) for number in first) + more
