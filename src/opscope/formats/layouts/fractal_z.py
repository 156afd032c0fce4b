# SPDX-License-Identifier: Apache-2.0
"""FRACTAL_Z, the layout of convolution weights, grouped ones included, and of 2-D matrices.

    (Gd * C1 * H * W, No, 16, C0):  tiles of 16 output channels by C0 input channels

With G groups, co = N / G outputs and C inputs a group: E = min(lcm(lcm(C, C0) / C, lcm(co, 16) /
co), G) groups lie side by side in one super-group, so that Copt = ceil(E C / C0) C0 and Nopt =
ceil(E co / 16) 16; Gd = ceil(G / E) super-groups follow each other, C1 = Copt / C0, No = Nopt / 16.
Group g, input c, output n of it lie at super-group g div E, channel (g mod E) C + c, column (g mod
E) co + n; the rest is zero. With one group E = 1. A 2-D matrix (K, N) is H = W = 1, C = K.
Source: the format transfer code of CANN's graph engine. (msaccucmp's own writer is wrong for more
than one super-group.)
"""

from __future__ import annotations

from math import lcm
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.errors import UsageError
from opscope.formats.layouts.family import CUBE, Shape, ceil_div, need_rank

if TYPE_CHECKING:
    from opscope.arrays import Array

MAX_GROUPS = 1 << 20


class _Grouping(msgspec.Struct, frozen=True):
    """How the groups of a weight of c inputs a group and n outputs in all lie in super-groups."""

    inputs: int
    outputs: int
    groups: int
    side: int
    c1: int
    columns: int

    @property
    def super_groups(self) -> int:
        return ceil_div(self.groups, self.side)


def _grouping(c: int, n: int, c0: int, groups: int) -> _Grouping:
    if groups > 1 and (n % groups or groups > MAX_GROUPS):
        raise UsageError(f"{n} output channels do not divide into {groups} groups")
    outputs = n // groups
    side = 1
    if groups > 1 and c and outputs:
        side = min(lcm(lcm(c, c0) // c, lcm(outputs, CUBE) // outputs), groups)
    return _Grouping(
        c, outputs, groups, side, ceil_div(side * c, c0), ceil_div(side * outputs, CUBE) * CUBE
    )


class FractalZ(msgspec.Struct, frozen=True, kw_only=True):
    """FRACTAL_Z against HWCN; of a group, H W C are its own and N counts all groups' outputs."""

    names: tuple[str, ...] = ("FRACTAL_Z",)
    host: str = "HWCN"

    def device_shape(self, host: Shape, *, c0: int, groups: int) -> Shape:
        need_rank(host, 4, "HWCN")
        h, w, c, n = host
        group = _grouping(c, n, c0, max(groups, 1))
        return (group.super_groups * group.c1 * h * w, group.columns // CUBE, CUBE, c0)

    def padded(self, device: Shape) -> Shape | None:
        need_rank(device, 4, "FRACTAL_Z")
        return None

    def unpack(self, device: Array, host: Shape, *, groups: int) -> Array:
        h, w, c, n = host
        group = _grouping(c, n, device.shape[-1], max(groups, 1))
        tiles = _tiles(device, group, h, w)
        if group.groups == 1:
            return tiles[:, :, 0, :c, :n]
        out = np.empty((h, w, c, n), device.dtype)
        for index, (super_group, inputs, outputs) in enumerate(_places(group)):
            out[..., index * group.outputs : (index + 1) * group.outputs] = tiles[
                :, :, super_group, inputs, outputs
            ]
        return out

    def pack(self, host: Array, *, c0: int, groups: int) -> Array:
        h, w, c, n = host.shape
        group = _grouping(c, n, c0, max(groups, 1))
        tiles = np.zeros((h, w, group.super_groups, group.c1 * c0, group.columns), host.dtype)
        for index, (super_group, inputs, outputs) in enumerate(_places(group)):
            tiles[:, :, super_group, inputs, outputs] = host[
                ..., index * group.outputs : (index + 1) * group.outputs
            ]
        blocks = tiles.reshape(h, w, group.super_groups, group.c1, c0, group.columns // CUBE, CUBE)
        ordered = np.ascontiguousarray(blocks.transpose(2, 3, 0, 1, 5, 6, 4))
        return ordered.reshape(self.device_shape(host.shape, c0=c0, groups=groups))


def _tiles(device: Array, group: _Grouping, h: int, w: int) -> Array:
    """The device's elements as (H, W, Gd, Copt, Nopt)."""
    c0 = device.shape[-1]
    blocks = device.reshape(group.super_groups, group.c1, h, w, group.columns // CUBE, CUBE, c0)
    return blocks.transpose(2, 3, 0, 1, 6, 4, 5).reshape(
        h, w, group.super_groups, group.c1 * c0, group.columns
    )


def _places(group: _Grouping) -> list[tuple[int, slice, slice]]:
    """Super-group, channels and columns of each group."""
    return [
        (
            index // group.side,
            slice(index % group.side * group.inputs, (index % group.side + 1) * group.inputs),
            slice(index % group.side * group.outputs, (index % group.side + 1) * group.outputs),
        )
        for index in range(group.groups)
    ]


FRACTAL_Z = FractalZ()
