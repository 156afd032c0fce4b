# SPDX-License-Identifier: Apache-2.0
"""FRACTAL_Z_3D, the layout of 3-D convolution weights.

    (D * C1 * H * W, No, 16, C0):  element (d, h, w, c, n) at row ((d C1 + c div C0) H + h) W + w,
                                   tile n div 16,
                                   column n mod 16, c mod C0: a FRACTAL_Z for each d

Source: the format transfer code of CANN's graph engine. No published code moves grouped weights in
this layout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.errors import UsageError
from opscope.formats.layouts.family import Shape, need_rank
from opscope.formats.layouts.fractal_z import FRACTAL_Z

if TYPE_CHECKING:
    from opscope.arrays import Array


class FractalZ3D(msgspec.Struct, frozen=True, kw_only=True):
    """FRACTAL_Z_3D against DHWCN."""

    names: tuple[str, ...] = ("FRACTAL_Z_3D",)
    host: str = "DHWCN"

    def device_shape(self, host: Shape, *, c0: int, groups: int) -> Shape:
        need_rank(host, 5, "DHWCN")
        if groups > 1:
            raise UsageError(f"the order of FRACTAL_Z_3D with {groups} groups is not published")
        rows, *tile = FRACTAL_Z.device_shape(host[1:], c0=c0, groups=1)
        return (host[0] * rows, *tile)

    def padded(self, device: Shape) -> Shape | None:
        need_rank(device, 4, "FRACTAL_Z_3D")
        return None

    def unpack(self, device: Array, host: Shape, *, groups: int) -> Array:
        del groups
        shape = FRACTAL_Z.device_shape(host[1:], c0=device.shape[-1], groups=1)
        out = np.empty(host, device.dtype)
        for depth, part in enumerate(device.reshape(host[0], *shape)):
            out[depth] = FRACTAL_Z.unpack(part, host[1:], groups=1)
        return out

    def pack(self, host: Array, *, c0: int, groups: int) -> Array:
        out = np.empty(self.device_shape(host.shape, c0=c0, groups=groups), host.dtype)
        shape = FRACTAL_Z.device_shape(host.shape[1:], c0=c0, groups=1)
        for part, values in zip(out.reshape(len(host), *shape), host, strict=True):
            part[:] = FRACTAL_Z.pack(values, c0=c0, groups=1)
        return out


FRACTAL_Z_3D = FractalZ3D()
