# SPDX-License-Identifier: Apache-2.0
"""FRACTAL_Z_3D, the layout of 3-D convolution weights.

    (D * C1 * H * W, No, 16, C0):  element (d, h, w, c, n) at row ((d C1 + c div C0) H + h) W + w,
                                   tile n div 16,
                                   column n mod 16, c mod C0

Source: the format transfer code of CANN's graph engine. No published code moves grouped weights in
this layout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.errors import UsageError
from opscope.formats.layouts.family import CUBE, Shape, ceil_div, need_rank, pad

if TYPE_CHECKING:
    from numpy.typing import NDArray


class FractalZ3D(msgspec.Struct, frozen=True, kw_only=True):
    """FRACTAL_Z_3D against DHWCN."""

    names: tuple[str, ...] = ("FRACTAL_Z_3D",)
    host: str = "DHWCN"

    def device_shape(self, host: Shape, *, c0: int, groups: int) -> Shape:
        need_rank(host, 5, "DHWCN")
        if groups > 1:
            raise UsageError(f"the order of FRACTAL_Z_3D with {groups} groups is not published")
        d, h, w, c, n = host
        return (d * ceil_div(c, c0) * h * w, ceil_div(n, CUBE), CUBE, c0)

    def padded(self, device: Shape) -> Shape | None:
        need_rank(device, 4, "FRACTAL_Z_3D")
        return None

    def unpack(self, device: NDArray[Any], host: Shape, *, groups: int) -> NDArray[Any]:
        del groups
        d, h, w, c, n = host
        _, n1, n0, c0 = device.shape
        c1 = ceil_div(c, c0)
        blocks = device.reshape(d, c1, h, w, n1, n0, c0).transpose(0, 2, 3, 1, 6, 4, 5)
        return blocks.reshape(d, h, w, c1 * c0, n1 * n0)[:, :, :, :c, :n]

    def pack(self, host: NDArray[Any], *, c0: int, groups: int) -> NDArray[Any]:
        shape = self.device_shape(host.shape, c0=c0, groups=groups)
        d, h, w, c, _ = host.shape
        c1, n1, n0 = ceil_div(c, c0), shape[1], shape[2]
        blocks = pad(host, (d, h, w, c1 * c0, n1 * n0)).reshape(d, h, w, c1, c0, n1, n0)
        return np.ascontiguousarray(blocks.transpose(0, 3, 1, 2, 5, 6, 4)).reshape(shape)


FRACTAL_Z_3D = FractalZ3D()
