# SPDX-License-Identifier: Apache-2.0
"""Feature maps with the channels cut into groups of C0: NC1HWC0, its C04 form, and NDC1HWC0.

    NC1HWC0   (N, C1, H, W, C0):     element (n, c, h, w) at (n, c div C0, h, w, c mod C0), C1 =
                                     ceil(C / C0)
    NDC1HWC0  (N, D, C1, H, W, C0):  the same with a depth axis behind N

Source: the format transfer code of CANN's graph engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.formats.layouts.family import Shape, ceil_div, need_rank, pad, trim

if TYPE_CHECKING:
    from opscope.arrays import Array


class ChannelBlocks(msgspec.Struct, frozen=True, kw_only=True):
    """A family whose device axes are `axes`, among them 1 (C1) and 0 (C0); host is the same with
    one C behind N.
    """

    names: tuple[str, ...]
    host: str
    axes: str
    c0: int | None = None

    def device_shape(self, host: Shape, *, c0: int, groups: int) -> Shape:
        del groups  # feature maps have none
        need_rank(host, len(self.host), self.host)
        size = dict(zip(self.host, host, strict=True))
        c0 = self.c0 or c0
        size |= {"1": ceil_div(size["C"], c0), "0": c0}
        return tuple(size[axis] for axis in self.axes)

    def padded(self, device: Shape) -> Shape | None:
        need_rank(device, len(self.axes), self.names[0])
        size = dict(zip(self.axes, device, strict=True))
        size["C"] = size["1"] * size["0"]
        return tuple(size[axis] for axis in self.host)

    def unpack(self, device: Array, host: Shape, *, groups: int) -> Array:
        del groups
        order = [
            self.axes.index(axis)
            for letter in self.host
            for axis in ("10" if letter == "C" else letter)
        ]
        full = self.padded(device.shape)
        assert full is not None  # noqa: S101 - this family always knows
        return trim(device.transpose(order).reshape(full), host)

    def pack(self, host: Array, *, c0: int, groups: int) -> Array:
        shape = self.device_shape(host.shape, c0=c0, groups=groups)
        size = dict(zip(self.axes, shape, strict=True))
        wide = tuple(
            size["1"] * size["0"] if letter == "C" else size[letter] for letter in self.host
        )
        split = "".join("10" if letter == "C" else letter for letter in self.host)
        blocks = pad(host, wide).reshape([size[axis] for axis in split])
        return np.ascontiguousarray(blocks.transpose([split.index(axis) for axis in self.axes]))


NC1HWC0 = ChannelBlocks(names=("NC1HWC0",), host="NCHW", axes="N1HW0")
NC1HWC0_C04 = ChannelBlocks(names=("NC1HWC0_C04",), host="NCHW", axes="N1HW0", c0=4)
NDC1HWC0 = ChannelBlocks(names=("NDC1HWC0",), host="NCDHW", axes="ND1HW0")
