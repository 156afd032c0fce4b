# SPDX-License-Identifier: Apache-2.0
"""Matrices cut into fractals of M0 = 16 rows by C0 columns: FRACTAL_NZ and FRACTAL_ZZ, with any
batch dimensions.

    FRACTAL_NZ  (*B, W1, H1, 16, C0):  element (h, w) at (w div C0, h div 16, h mod 16, w mod C0)
    FRACTAL_ZZ  (*B, H1, W1, 16, C0):  element (h, w) at (h div 16, w div C0, h mod 16, w mod C0)

A vector (N) is a column: (N, 1). Source: the format transfer and shape code of CANN's graph engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.errors import UsageError
from opscope.formats.layouts.family import CUBE, Shape, ceil_div, pad, trim

if TYPE_CHECKING:
    from opscope.arrays import Array


class Fractals(msgspec.Struct, frozen=True, kw_only=True):
    """A family of fractals against ND; columns_first says which of the outer two axes counts
    columns.
    """

    names: tuple[str, ...]
    columns_first: bool
    host: str = "ND"

    def device_shape(self, host: Shape, *, c0: int, groups: int) -> Shape:
        del groups
        *batch, rows, columns = _matrix(host)
        outer = (ceil_div(columns, c0), ceil_div(rows, CUBE))
        return (*batch, *(outer if self.columns_first else reversed(outer)), CUBE, c0)

    def padded(self, device: Shape) -> Shape | None:
        if len(device) < 4:
            raise UsageError(
                f"a tensor of shape {list(device)} is not in layout {self.names[0]}, which "
                "has four dimensions or more"
            )
        *batch, first, second, m0, c0 = device
        w1, h1 = (first, second) if self.columns_first else (second, first)
        return (*batch, h1 * m0, w1 * c0)

    def unpack(self, device: Array, host: Shape, *, groups: int) -> Array:
        del groups
        full = self.padded(device.shape)
        assert full is not None  # noqa: S101 - this family always knows
        batch = tuple(range(device.ndim - 4))
        first, second, m0, c0 = range(device.ndim - 4, device.ndim)
        w1, h1 = (first, second) if self.columns_first else (second, first)
        matrix = device.transpose(*batch, h1, m0, w1, c0).reshape(full)
        return trim(matrix, _matrix(host)).reshape(host)

    def pack(self, host: Array, *, c0: int, groups: int) -> Array:
        shape = self.device_shape(host.shape, c0=c0, groups=groups)
        full = self.padded(shape)
        assert full is not None  # noqa: S101 - this family always knows
        *batch, rows, columns = full
        blocks = pad(host.reshape(_matrix(host.shape)), full).reshape(
            *batch, rows // CUBE, CUBE, columns // c0, c0
        )
        h1, m0, w1, n0 = range(len(batch), len(batch) + 4)
        outer = (w1, h1) if self.columns_first else (h1, w1)
        return np.ascontiguousarray(blocks.transpose(*range(len(batch)), *outer, m0, n0))


def _matrix(host: Shape) -> Shape:
    if not host:
        raise UsageError("a scalar has no fractal layout")
    return (host[0], 1) if len(host) == 1 else host


FRACTAL_NZ = Fractals(
    names=(
        "FRACTAL_NZ",
        "FRACTAL_NZ_C0_16",
        "FRACTAL_NZ_C0_32",
        "FRACTAL_NZ_C0_2",
        "FRACTAL_NZ_C0_4",
        "FRACTAL_NZ_C0_8",
    ),
    columns_first=True,
)
FRACTAL_ZZ = Fractals(names=("FRACTAL_ZZ",), columns_first=False)
