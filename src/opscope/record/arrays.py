# SPDX-License-Identifier: Apache-2.0
"""What the tables have of a NumPy array: its statistics, and the bytes of its value."""

from __future__ import annotations

import msgspec
import numpy as np

from opscope.arrays import Array
from opscope.kernels import statistics
from opscope.run.schema import Tensor


def measured(row: Tensor, array: Array) -> Tensor:
    """The row with the statistics of its elements; as it is where they have none (text)."""
    try:
        known = msgspec.structs.asdict(statistics(array))
    except TypeError:
        return row
    return msgspec.structs.replace(
        row, **{name: value for name, value in known.items() if name in Tensor.__struct_fields__}
    )


def bytes_of(array: Array) -> Array:
    """The bytes of an array's elements in C order; ml_dtypes' types offer no buffer of their
    own.
    """
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
