# SPDX-License-Identifier: Apache-2.0
"""Plain layouts: every letter of the name is one axis (NCHW, NHWC, HWCN, CHWN, NCDHW, NDHWC, DHWCN,
…).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from opscope.errors import UsageError
from opscope.formats.layouts.family import need_rank

if TYPE_CHECKING:
    from opscope.arrays import Array
    from opscope.formats.layouts.family import Shape

PLAIN = ("NCHW", "NHWC", "HWCN", "CHWN", "NCDHW", "NDHWC", "DHWCN", "DHWNC", "NCL", "NC", "CN")
"""Plain layouts; where a shape fits several, the earlier one is meant."""


class Same(msgspec.Struct, frozen=True, kw_only=True):
    """The family of a plain layout: the device's order is the host's."""

    names: tuple[str, ...]
    host: str

    def device_shape(self, host: Shape, *, c0: int, groups: int) -> Shape:
        del c0, groups
        need_rank(host, len(self.host), self.host)
        return host

    def padded(self, device: Shape) -> Shape | None:
        need_rank(device, len(self.host), self.host)
        return device

    def unpack(self, device: Array, host: Shape, *, groups: int) -> Array:
        del host, groups
        return device

    def pack(self, host: Array, *, c0: int, groups: int) -> Array:
        del c0, groups
        return host


def is_plain(layout: str) -> bool:
    """Whether the letters of the layout are its axes."""
    return layout in PLAIN


def can_reach(source: str, target: str) -> bool:
    """Whether two plain layouts have the same axes."""
    return sorted(source) == sorted(target)


def _order(source: str, target: str) -> tuple[int, ...]:
    if not can_reach(source, target):
        raise UsageError(f"no conversion from layout {source} to {target}: their axes differ")
    return tuple(source.index(axis) for axis in target)


def transpose(array: Array, source: str, target: str) -> Array:
    """A view of the array with its axes in the target's order. Raises UsageError when the axes
    differ.
    """
    return array.transpose(_order(source, target))


def permute(shape: Shape, source: str, target: str) -> Shape:
    """The shape with its dimensions in the target's order."""
    return tuple(shape[axis] for axis in _order(source, target))
