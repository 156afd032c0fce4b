# SPDX-License-Identifier: Apache-2.0
"""One pass over memory: statistics and digest of an array, by the compiled kernels, or by NumPy
where those are missing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from opscope.kernels import compiled, reference
from opscope.kernels.reference import Statistics
from opscope.narrow import name_of

__all__ = ["Statistics", "digest", "native_available", "statistics"]


def statistics(array: NDArray[np.generic], *, digest: bool = True, threads: int = 1) -> Statistics:
    """Answers counts, extremes, mean, l2norm and digest of an array of numbers (NumPy's,
    ours of opscope.narrow, ml_dtypes').

    Any shape and strides. `threads` is the most that a large array is spread over; the answer does
    not depend on it. The global interpreter lock is released meanwhile. Raises TypeError for
    elements that are no numbers.
    """
    number = compiled.NUMBERS.get(name_of(array.dtype))
    native = compiled.load() if number is not None else None
    if native is None or number is None:
        return reference.statistics(array, digest=digest)
    return compiled.statistics(native, array, number, digest=digest, threads=threads)


def digest(array: NDArray[np.generic]) -> int:
    """Answers the 64-bit digest of an array's elements, as reference.digest defines it."""
    known = statistics(array).digest
    return known if known is not None else reference.digest(array)


def native_available() -> bool:
    """Says whether the compiled kernels are loaded; where they are not, the first call warns."""
    return compiled.load() is not None
