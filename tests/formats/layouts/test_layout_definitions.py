# SPDX-License-Identifier: Apache-2.0
"""Each layout against its definition, element by element, written as the loops the graph engine
runs (independent of the code).
"""

from __future__ import annotations

from itertools import product
from math import gcd, prod

import numpy as np
import pytest

from opscope.formats import layouts


def numbered(*shape: int) -> np.ndarray:
    return np.arange(1, prod(shape) + 1).reshape(shape)


def up(a: int, b: int) -> int:
    return (a + b - 1) // b


@pytest.mark.parametrize(("c", "c0"), [(1, 16), (16, 16), (17, 16), (40, 32), (3, 4)])
def test_nc1hwc0(c: int, c0: int) -> None:
    host = numbered(2, c, 3, 5)
    device = np.zeros((2, up(c, c0), 3, 5, c0), host.dtype)
    for n, k, h, w in product(range(2), range(c), range(3), range(5)):
        device[n, k // c0, h, w, k % c0] = host[n, k, h, w]
    np.testing.assert_array_equal(layouts.from_host(host, "NCHW", "NC1HWC0", c0=c0), device)


def test_nc1hwc0_c04_has_four_channels_a_block_whatever_c0() -> None:
    host = numbered(1, 3, 2, 2)
    device = layouts.from_host(host, "NCHW", "NC1HWC0_C04", c0=16)
    assert device.shape == (1, 1, 2, 2, 4)
    np.testing.assert_array_equal(device[0, 0, :, :, :3], host[0].transpose(1, 2, 0))


def test_ndc1hwc0() -> None:
    host = numbered(2, 20, 3, 2, 4)  # NCDHW
    device = np.zeros((2, 3, 2, 2, 4, 16), host.dtype)
    for n, c, d, h, w in np.ndindex(*host.shape):
        device[n, d, c // 16, h, w, c % 16] = host[n, c, d, h, w]
    np.testing.assert_array_equal(layouts.from_host(host, "NCDHW", "NDC1HWC0"), device)


def grouped_fractal_z(host: np.ndarray, c0: int, groups: int) -> np.ndarray:
    """The graph engine's formula: flat index of each element of an HWCN weight."""
    h, w, c, n = host.shape
    co = n // groups
    first = c * c0 // gcd(c, c0) // c
    second = co * 16 // gcd(co, 16) // co
    e = min(first * second // gcd(first, second), groups)
    copt, nopt = up(e * c, c0) * c0, up(e * co, 16) * 16
    c1, gd = copt // c0, up(groups, e)
    flat = np.zeros(gd * c1 * h * w * nopt * c0, host.dtype)
    for g, i, j, ci, ni in product(range(groups), range(h), range(w), range(c), range(co)):
        dc, dn = g % e * c + ci, g % e * co + ni
        at = (
            (g // e * c1 + dc // c0) * h * w * nopt * c0
            + i * w * nopt * c0
            + j * nopt * c0
            + dn * c0
            + dc % c0
        )
        flat[at] = host[i, j, ci, g * co + ni]
    return flat.reshape(gd * c1 * h * w, nopt // 16, 16, c0)


# One super-group, several, a single group, channels that divide C0 and that do not.
@pytest.mark.parametrize(
    ("c", "n", "groups", "c0"),
    [
        (3, 20, 1, 16),
        (40, 33, 1, 16),
        (40, 33, 1, 32),
        (16, 32, 2, 16),
        (24, 96, 3, 16),
        (1, 32, 32, 16),
        (4, 8, 2, 16),
        (5, 21, 7, 32),
    ],
)
def test_fractal_z(c: int, n: int, groups: int, c0: int) -> None:
    host = numbered(2, 3, c, n)
    np.testing.assert_array_equal(
        layouts.from_host(host, "HWCN", "FRACTAL_Z", c0=c0, groups=groups),
        grouped_fractal_z(host, c0, groups),
    )


def test_fractal_z_of_a_matrix_is_its_rows_as_channels() -> None:
    matrix = numbered(20, 40)
    device = layouts.from_host(matrix.reshape(1, 1, 20, 40), "HWCN", "FRACTAL_Z")
    assert device.shape == (2, 3, 16, 16)
    assert device[1, 2, 7, 3] == matrix[19, 39]
    origin = layouts.resolve("FRACTAL_Z", device.shape, (20, 40))
    assert origin is not None
    np.testing.assert_array_equal(layouts.to_host(device, "FRACTAL_Z", origin), matrix)


def test_fractal_z_of_a_square_matrix_is_not_transposed() -> None:
    matrix = numbered(16, 16)
    device = layouts.from_host(matrix.reshape(1, 1, 16, 16), "HWCN", "FRACTAL_Z")
    origin = layouts.resolve("FRACTAL_Z", device.shape, (16, 16))
    assert origin is not None
    np.testing.assert_array_equal(layouts.to_host(device, "FRACTAL_Z", origin), matrix)


def test_fractal_z_c04() -> None:
    host = numbered(3, 5, 3, 20)
    device = np.zeros((up(4 * 15, 16), 2, 16, 16), host.dtype)
    for h, w, c, n in np.ndindex(*host.shape):
        t = h * 5 * 4 + w * 4 + c
        device[t // 16, n // 16, n % 16, t % 16] = host[h, w, c, n]
    np.testing.assert_array_equal(layouts.from_host(host, "HWCN", "FRACTAL_Z_C04"), device)


def test_fractal_z_3d() -> None:
    host = numbered(2, 3, 2, 20, 18)  # DHWCN
    d, h, w, c, n = host.shape
    flat = np.zeros((d * up(c, 16) * h * w, up(n, 16), 16, 16), host.dtype)
    for k, i, j, ci, ni in np.ndindex(*host.shape):
        flat[((k * up(c, 16) + ci // 16) * h + i) * w + j, ni // 16, ni % 16, ci % 16] = host[
            k, i, j, ci, ni
        ]
    np.testing.assert_array_equal(layouts.from_host(host, "DHWCN", "FRACTAL_Z_3D"), flat)


@pytest.mark.parametrize("c0", [16, 32])
def test_fractal_nz_and_zz(c0: int) -> None:
    host = numbered(2, 3, 20, 37)
    h1, w1 = up(20, 16), up(37, c0)
    nz, zz = (
        np.zeros((2, 3, w1, h1, 16, c0), host.dtype),
        np.zeros((2, 3, h1, w1, 16, c0), host.dtype),
    )
    for a, b, h, w in np.ndindex(*host.shape):
        nz[a, b, w // c0, h // 16, h % 16, w % c0] = zz[a, b, h // 16, w // c0, h % 16, w % c0] = (
            host[a, b, h, w]
        )
    np.testing.assert_array_equal(layouts.from_host(host, "ND", "FRACTAL_NZ", c0=c0), nz)
    np.testing.assert_array_equal(layouts.from_host(host, "ND", "FRACTAL_ZZ", c0=c0), zz)


def test_c1hwncoc0_is_a_diagonal() -> None:
    host = numbered(2, 3, 20, 1)
    device = np.zeros((2, 2, 3, 1, 16, 16), host.dtype)
    for h, w, c, n in np.ndindex(*host.shape):
        device[c // 16, h, w, n, c % 16, c % 16] = host[h, w, c, n]
    np.testing.assert_array_equal(layouts.from_host(host, "HWCN", "C1HWNCoC0"), device)


def test_resolve_prefers_what_is_said_and_else_nchw() -> None:
    device = layouts.from_host(numbered(1, 4, 4, 4), "NCHW", "NC1HWC0")
    assert layouts.resolve("NC1HWC0", device.shape, (1, 4, 4, 4)) == layouts.Origin(
        (1, 4, 4, 4), "NCHW", (1, 4, 4, 4)
    )
    said = layouts.resolve("NC1HWC0", device.shape, (1, 4, 4, 4), prefer=("NHWC",))
    assert said is not None
    assert said.layout == "NHWC"


def test_a_shape_says_which_layout_the_origin_has() -> None:
    device = layouts.from_host(numbered(2, 5, 7, 20), "NHWC", "NC1HWC0")
    origin = layouts.resolve("NC1HWC0", device.shape, (2, 5, 7, 20), prefer=("NCHW",))
    assert origin is not None
    assert origin.layout == "NHWC"
    np.testing.assert_array_equal(layouts.to_host(device, "NC1HWC0", origin), numbered(2, 5, 7, 20))
    np.testing.assert_array_equal(
        layouts.to_host(device, "NC1HWC0", origin, target="NCHW"),
        numbered(2, 5, 7, 20).transpose(0, 3, 1, 2),
    )


def test_tensors_of_fewer_axes_keep_their_shape() -> None:
    bias = numbered(20)
    device = layouts.from_host(bias.reshape(1, 20, 1, 1), "NCHW", "NC1HWC0")
    origin = layouts.resolve("NC1HWC0", device.shape, (20,))
    assert origin is not None
    np.testing.assert_array_equal(layouts.to_host(device, "NC1HWC0", origin), bias)


def test_a_volume_of_four_axes_has_depth_one() -> None:
    host = numbered(2, 20, 3, 4)
    device = layouts.from_host(host.reshape(2, 20, 1, 3, 4), "NCDHW", "NDC1HWC0")
    origin = layouts.resolve("NDC1HWC0", device.shape, host.shape)
    assert origin is not None
    np.testing.assert_array_equal(layouts.to_host(device, "NDC1HWC0", origin), host)
