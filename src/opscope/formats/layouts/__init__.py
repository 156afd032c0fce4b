# SPDX-License-Identifier: Apache-2.0
"""Tensor layouts of Ascend: device order to host order and back.

A plain layout is its letters ("NCHW"); a private one belongs to a family, one file each, registered
once in FAMILIES. C0 is
never assumed: it is the last dimension of the device's shape. `groups` is the sub-format of a
grouped convolution's weight.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import msgspec

from opscope.errors import UsageError
from opscope.formats.layouts import plain
from opscope.formats.layouts.c1hwncoc0 import C1HWNCOC0
from opscope.formats.layouts.fractal_nz import FRACTAL_NZ, FRACTAL_ZZ
from opscope.formats.layouts.fractal_z import FRACTAL_Z
from opscope.formats.layouts.fractal_z_3d import FRACTAL_Z_3D
from opscope.formats.layouts.fractal_z_c04 import FRACTAL_Z_C04
from opscope.formats.layouts.nc1hwc0 import NC1HWC0, NC1HWC0_C04, NDC1HWC0

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opscope.arrays import Array
    from opscope.formats.layouts.family import Family, Shape

FAMILIES: tuple[Family, ...] = (
    NC1HWC0,
    NC1HWC0_C04,
    NDC1HWC0,
    FRACTAL_Z,
    FRACTAL_Z_C04,
    FRACTAL_Z_3D,
    FRACTAL_NZ,
    FRACTAL_ZZ,
    C1HWNCOC0,
    *(plain.Same(names=(name,), host=name) for name in plain.PLAIN),
)
BY_NAME: dict[str, Family] = {name: family for family in FAMILIES for name in family.names}


class Origin(msgspec.Struct, frozen=True):
    """What a device tensor is on the host.

    shape is the user's; layout says in which order its elements lie, and full is the shape with
    every axis of that layout ((N, C) of an NCHW tensor is full (N, C, 1, 1)). Layout "ND" names no
    axes; full is then shape.
    """

    shape: tuple[int, ...]
    layout: str
    full: tuple[int, ...]


def is_private(layout: str) -> bool:
    """Whether the elements of a tensor in this layout lie in another order than its axes."""
    return layout in BY_NAME and not plain.is_plain(layout)


def resolve(
    layout: str, device: Shape, shape: Shape, *, groups: int = 1, prefer: tuple[str, ...] = ()
) -> Origin | None:
    """How a host tensor of this shape became a device tensor of shape device, or None when it
    cannot have.

    Where several plain layouts fit, those of prefer come first, then NCHW (for tensors of fewer
    axes, the layout the family is defined against). Raises nothing: whatever does not fit is None.
    """
    family = BY_NAME.get(layout)
    if family is None or not device or min(device) <= 0 or min(shape, default=1) <= 0:
        return None
    for origin in _readings(family, shape, prefer):
        host = _host_shape(origin, family)
        try:
            if family.device_shape(host, c0=device[-1], groups=max(groups, 1)) == device:
                return origin
        except UsageError:
            continue
    return None


def _readings(family: Family, shape: Shape, prefer: tuple[str, ...]) -> Iterator[Origin]:
    """Every way to read a host shape in the plain layouts that have the family's axes."""
    if family.host == "ND":
        yield Origin(shape, "ND", shape)
        return
    rank = len(family.host)
    fitting = [name for name in plain.PLAIN if plain.can_reach(name, family.host)]
    first = [*prefer, *([] if len(shape) == rank else [family.host])]
    ordered = [name for name in first if name in fitting]
    for name in [*ordered, *(name for name in fitting if name not in ordered)]:
        for axes in combinations(range(rank), len(shape)):
            full = [1] * rank
            for axis, size in zip(axes, shape, strict=True):
                full[axis] = size
            yield Origin(shape, name, tuple(full))


def padded(layout: str, device: Shape) -> Origin | None:
    """The largest host tensor a device shape can hold, in the layout its family is defined against;
    None when unknown.
    """
    family = BY_NAME.get(layout)
    try:
        shape = family.padded(device) if family is not None else None
    except UsageError:
        return None
    return None if family is None or shape is None else Origin(shape, family.host, shape)


def to_host(
    device: Array, layout: str, origin: Origin, *, groups: int = 1, target: str | None = None
) -> Array:
    """Elements of a device tensor without padding, in origin.shape; with target, in that plain
    layout and all its axes.

    The result may be a view. Raises UsageError when shapes or axes do not belong together.
    """
    family = _family(layout)
    host = _host_shape(origin, family)
    c0 = device.shape[-1] if device.ndim else 0
    if c0 == 0 or family.device_shape(host, c0=c0, groups=max(groups, 1)) != device.shape:
        raise UsageError(
            f"a host tensor of shape {list(origin.shape)} is not {layout} "
            f"{list(device.shape)} on the device"
        )
    values = family.unpack(device, host, groups=max(groups, 1))
    if origin.layout == "ND":
        return values
    if target is not None:
        return plain.transpose(values, family.host, target)
    return plain.transpose(values, family.host, origin.layout).reshape(origin.shape)


def from_host(host: Array, source: str, layout: str, *, c0: int = 16, groups: int = 1) -> Array:
    """Elements of a host tensor (plain layout source, all its axes, or "ND") in device order,
    padding zero.

    The inverse of to_host. Raises UsageError when the layout cannot hold the tensor.
    """
    family = _family(layout)
    if c0 <= 0:
        raise UsageError(f"C0 is {c0}; it must be positive")
    if family.host == "ND":
        return family.pack(host, c0=c0, groups=max(groups, 1))
    if host.ndim != len(source):
        raise UsageError(f"a tensor of shape {list(host.shape)} is not in layout {source}")
    return family.pack(plain.transpose(host, source, family.host), c0=c0, groups=max(groups, 1))


def _host_shape(origin: Origin, family: Family) -> tuple[int, ...]:
    """All axes of a plain tensor in the layout that the family is defined against."""
    if origin.layout == "ND":
        return origin.full
    return plain.permute(origin.full, origin.layout, family.host)


def _family(layout: str) -> Family:
    family = BY_NAME.get(layout)
    if family is None:
        raise UsageError(f"no conversion from or to layout {layout} is known")
    return family
