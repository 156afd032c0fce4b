# SPDX-License-Identifier: Apache-2.0
"""Every layout, for any shape, dtype, C0 and groups: host -> device -> host gives the same
elements, and padding is zero.
"""

from __future__ import annotations

from math import prod

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opscope.errors import UsageError
from opscope.formats import layouts
from opscope.formats.layouts import plain

DTYPES = (np.float32, np.float16, np.int8, np.int64, ml_dtypes.bfloat16)
PRIVATE = tuple(name for name in layouts.BY_NAME if layouts.is_private(name))


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, str, tuple[int, ...], int, int]:
    """A private layout, a plain one with its axes, a host shape, C0 and groups that go together."""
    layout = draw(st.sampled_from(PRIVATE))
    family = layouts.BY_NAME[layout]
    c0 = {"NC1HWC0_C04": 4}.get(layout) or draw(st.sampled_from((2, 4, 8, 16, 32, 64)))
    if family.host == "ND":
        return (
            layout,
            "ND",
            tuple(draw(st.lists(st.integers(1, 40), min_size=1, max_size=4))),
            c0,
            1,
        )
    source = draw(
        st.sampled_from([name for name in plain.PLAIN if plain.can_reach(name, family.host)])
    )
    sizes = {axis: draw(st.integers(1, 4)) for axis in source} | {
        "C": draw(st.integers(1, 40)),
        "N": draw(st.integers(1, 20)),
    }
    groups = 1
    if layout == "FRACTAL_Z_C04":
        sizes["C"] = draw(st.integers(1, 4))
    if layout == "FRACTAL_Z":
        groups = draw(st.integers(1, 9))
        sizes["N"] *= groups
    if layout == "C1HWNCoC0":
        sizes["N"] = draw(st.integers(1, 3))
    return layout, source, tuple(sizes[axis] for axis in source), c0, groups


def numbered(shape: tuple[int, ...], dtype: type = np.int64) -> np.ndarray:
    """An array whose elements are all different (1, 2, 3, …), so that a wrong move shows."""
    return np.arange(1, prod(shape) + 1).reshape(shape).astype(dtype)


@given(cases())
@settings(max_examples=200, deadline=None)
def test_there_and_back(case: tuple[str, str, tuple[int, ...], int, int]) -> None:
    layout, source, shape, c0, groups = case
    host = numbered(shape)
    device = layouts.from_host(host, source, layout, c0=c0, groups=groups)
    assert device.flags.c_contiguous
    np.testing.assert_array_equal(np.sort(device[device != 0]), np.sort(host, axis=None))
    origin = layouts.resolve(layout, device.shape, shape, groups=groups, prefer=(source,))
    assert origin is not None
    back = layouts.to_host(device, layout, origin, groups=groups)
    assert back.shape == shape
    np.testing.assert_array_equal(back, host)


@given(cases(), st.sampled_from(DTYPES))
@settings(max_examples=50, deadline=None)
def test_bits_survive_in_every_dtype(
    case: tuple[str, str, tuple[int, ...], int, int], dtype: type
) -> None:
    layout, source, shape, c0, groups = case
    host = (
        np.random.default_rng(0)
        .integers(0, 256, prod(shape) * np.dtype(dtype).itemsize)
        .astype(np.uint8)
        .view(dtype)
        .reshape(shape)
    )
    device = layouts.from_host(host, source, layout, c0=c0, groups=groups)
    origin = layouts.resolve(layout, device.shape, shape, groups=groups, prefer=(source,))
    assert origin is not None
    assert layouts.to_host(device, layout, origin, groups=groups).tobytes() == host.tobytes()


@given(st.sampled_from(plain.PLAIN[:8]), st.data())
def test_plain_layouts_are_transposes(source: str, data: st.DataObject) -> None:
    target = data.draw(
        st.sampled_from([name for name in plain.PLAIN if plain.can_reach(name, source)])
    )
    shape = tuple(data.draw(st.integers(1, 4)) for _ in source)
    host = numbered(shape)
    moved = plain.transpose(host, source, target)
    index = tuple(data.draw(st.integers(0, size - 1)) for size in shape)
    place = dict(zip(source, index, strict=True))
    assert moved[tuple(place[axis] for axis in target)] == host[index]
    assert moved.shape == plain.permute(shape, source, target)


@pytest.mark.parametrize("layout", PRIVATE)
def test_a_shape_of_another_tensor_is_refused(layout: str) -> None:
    family = layouts.BY_NAME[layout]
    host = (5, 3, 4, 4, 2)[: 2 if family.host == "ND" else len(family.host)]
    c0 = 4 if layout == "NC1HWC0_C04" else 16
    device = layouts.from_host(numbered(host), family.host, layout, c0=c0)
    wrong = layouts.Origin(
        (7, 90, 90, 7, 7)[: len(host)], family.host, (7, 90, 90, 7, 7)[: len(host)]
    )
    with pytest.raises(UsageError):
        layouts.to_host(device, layout, wrong)
    assert layouts.resolve(layout, device.shape, wrong.shape) is None


def test_layouts_without_published_order_are_refused() -> None:
    with pytest.raises(UsageError, match="FRACTAL_ZN_LSTM"):
        layouts.from_host(np.zeros((4, 4)), "ND", "FRACTAL_ZN_LSTM")
    with pytest.raises(UsageError, match="groups is not published"):
        layouts.from_host(np.zeros((1, 1, 1, 4, 4)), "DHWCN", "FRACTAL_Z_3D", groups=2)
    assert layouts.resolve("FRACTAL_Z_3D_TRANSPOSE", (1, 1, 16, 16), (1, 1, 1, 4, 4)) is None
