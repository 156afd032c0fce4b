# SPDX-License-Identifier: Apache-2.0
"""What every layout family offers, and the axis arithmetic they share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from opscope.errors import UsageError

if TYPE_CHECKING:
    from opscope.arrays import Array

Shape = tuple[int, ...]
CUBE = 16
"""M0 and N0 of the cube unit: rows and columns of one fractal."""


class Family(Protocol):
    """One family of device layouts: how its shape follows from the host's, and how its elements
    move.

    names are the device formats it reads; host is the plain layout it is defined against ("ND" for
    matrices of any rank); shapes and arrays on the host side are always in that layout. groups is
    that of a grouped convolution's weight, else 1.
    """

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def host(self) -> str: ...

    def device_shape(self, host: Shape, *, c0: int, groups: int) -> Shape:
        """Shape on the device of a host shape; raises UsageError for one the layout cannot hold."""
        ...

    def padded(self, device: Shape) -> Shape | None:
        """Largest host shape with this device shape, or None when the device shape does not say
        enough.
        """
        ...

    def unpack(self, device: Array, host: Shape, *, groups: int) -> Array:
        """Elements in host order and shape; device.shape equals device_shape(host)."""
        ...

    def pack(self, host: Array, *, c0: int, groups: int) -> Array:
        """Elements in device order, padding zero: the inverse of unpack."""
        ...


def ceil_div(a: int, b: int) -> int:
    """The smallest integer at least a / b."""
    return -(-a // b)


def pad(array: Array, shape: Shape) -> Array:
    """The array with zeros behind it in every axis, up to shape."""
    if array.shape == shape:
        return array
    out = np.zeros(shape, array.dtype)
    out[tuple(slice(0, size) for size in array.shape)] = array
    return out


def trim(array: Array, shape: Shape) -> Array:
    """The leading part of the array that has this shape."""
    return array[tuple(slice(0, size) for size in shape)]


def need_rank(shape: Shape, rank: int, layout: str) -> None:
    """Raise UsageError unless the shape has this rank."""
    if len(shape) != rank:
        raise UsageError(
            f"a tensor of shape {list(shape)} is not in layout {layout}, which has {rank} "
            "dimensions"
        )
