# SPDX-License-Identifier: Apache-2.0
"""FRACTAL_Z_C04: weights of at most four input channels, the kernel's positions in the place of
channel blocks.

    (ceil(4 H W / C0), No, 16, C0):  element (h, w, c, n) has t = (h W + w) 4 + c and lies at
                                     (t div C0, n div 16, n mod 16, t mod C0)

Source: the shape rule and the move in CANN's graph engine; for more than four channels no source is
consistent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.errors import UsageError
from opscope.formats.layouts.family import CUBE, Shape, ceil_div, need_rank, pad

if TYPE_CHECKING:
    from opscope.arrays import Array

_FOUR = 4


class FractalZC04(msgspec.Struct, frozen=True, kw_only=True):
    """FRACTAL_Z_C04 against HWCN."""

    names: tuple[str, ...] = ("FRACTAL_Z_C04",)
    host: str = "HWCN"

    def device_shape(self, host: Shape, *, c0: int, groups: int) -> Shape:
        del groups
        need_rank(host, 4, "HWCN")
        h, w, c, n = host
        if c > _FOUR:
            raise UsageError(f"FRACTAL_Z_C04 holds at most four input channels, not {c}")
        return (ceil_div(_FOUR * h * w, c0), ceil_div(n, CUBE), CUBE, c0)

    def padded(self, device: Shape) -> Shape | None:
        need_rank(device, 4, "FRACTAL_Z_C04")
        return None

    def unpack(self, device: Array, host: Shape, *, groups: int) -> Array:
        del groups
        h, w, c, n = host
        k1, n1, n0, c0 = device.shape
        rows = device.transpose(0, 3, 1, 2).reshape(k1 * c0, n1 * n0)
        return rows[: _FOUR * h * w, :n].reshape(h, w, _FOUR, n)[:, :, :c]

    def pack(self, host: Array, *, c0: int, groups: int) -> Array:
        k1, n1, n0, _ = shape = self.device_shape(host.shape, c0=c0, groups=groups)
        h, w, _, n = host.shape
        rows = pad(pad(host, (h, w, _FOUR, n)).reshape(h * w * _FOUR, n), (k1 * c0, n1 * n0))
        return np.ascontiguousarray(rows.reshape(k1, c0, n1, n0).transpose(0, 2, 3, 1)).reshape(
            shape
        )


FRACTAL_Z_C04 = FractalZC04()
