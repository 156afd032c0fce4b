# SPDX-License-Identifier: Apache-2.0
"""C1HWNCoC0, the layout of depthwise weights: every channel on the diagonal of a C0 by C0 square.

    (C1, H, W, N, C0, C0):  element (h, w, c, n) at (c div C0, h, w, n, c mod C0, c mod C0), the
                            rest is zero

Source: the format transfer code of CANN's graph engine. Its shape code has ceil(N / 16) in the
place of N; a dumped shape of that kind has no published order and is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.errors import UsageError
from opscope.formats.layouts.family import Shape, ceil_div, need_rank, pad

if TYPE_CHECKING:
    from opscope.arrays import Array


class Diagonal(msgspec.Struct, frozen=True, kw_only=True):
    """C1HWNCoC0 against HWCN."""

    names: tuple[str, ...] = ("C1HWNCoC0",)
    host: str = "HWCN"

    def device_shape(self, host: Shape, *, c0: int, groups: int) -> Shape:
        del groups
        need_rank(host, 4, "HWCN")
        h, w, c, n = host
        return (ceil_div(c, c0), h, w, n, c0, c0)

    def padded(self, device: Shape) -> Shape | None:
        need_rank(device, 6, "C1HWNCoC0")
        c1, h, w, n, co, c0 = device
        if co != c0:
            raise UsageError(f"C1HWNCoC0 of shape {list(device)}: its last two dimensions differ")
        return (h, w, c1 * c0, n)

    def unpack(self, device: Array, host: Shape, *, groups: int) -> Array:
        del groups
        c1, h, w, n, _, c0 = device.shape
        diagonal = np.diagonal(device, axis1=4, axis2=5)
        return diagonal.transpose(1, 2, 0, 4, 3).reshape(h, w, c1 * c0, n)[:, :, : host[2]]

    def pack(self, host: Array, *, c0: int, groups: int) -> Array:
        shape = self.device_shape(host.shape, c0=c0, groups=groups)
        c1, h, w, n = shape[:4]
        channels = pad(host, (h, w, c1 * c0, n)).reshape(h, w, c1, c0, n)
        out = np.zeros(shape, host.dtype)
        square = np.arange(c0)
        out[..., square, square] = channels.transpose(2, 0, 1, 4, 3)
        return out


C1HWNCOC0 = Diagonal()
