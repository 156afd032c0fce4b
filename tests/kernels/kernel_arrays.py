# SPDX-License-Identifier: Apache-2.0
"""Arrays of every type, shape and layout, with everything that floats can hold, and what it means
to be equal.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from opscope.kernels import Statistics, compiled, reference

DTYPES = compiled.NAMES
FLOATING = (
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "float8_e4m3fn",
    "float8_e5m2",
    "complex64",
    "complex128",
)
# Around every length at which a kernel changes its loop, and past the digest's block of 4096 bytes.
LENGTHS = (
    0,
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    9,
    15,
    16,
    17,
    31,
    32,
    33,
    63,
    64,
    65,
    127,
    130,
    255,
    257,
    511,
    513,
    1023,
    1025,
    2047,
    2049,
    4095,
    4099,
    9001,
)


def special(dtype: np.dtype[Any]) -> NDArray[Any]:
    """Zeros, infinities, NaNs with payload, denormals, the ends of the range and the neighbourhood
    of the limit.
    """
    if dtype.name in ("complex64", "complex128"):
        parts = special(np.dtype(np.float32 if dtype.name == "complex64" else np.float64))
        pairs = np.empty((parts.size, parts.size), dtype)
        pairs.real, pairs.imag = parts[:, None], parts[::-1][None, :]
        return pairs.reshape(-1)
    if dtype.name not in FLOATING:
        low, high = (
            (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
        )
        return np.array([low, high, 0, min(1, high), high // 2], dtype)
    info = ml_dtypes.finfo(dtype)
    tiny, largest = float(info.smallest_subnormal), float(info.max)
    finite = [0.0, -0.0, tiny, -tiny, float(info.tiny), largest, -largest, 1.0, -1.0]
    near = [
        0.9 * largest,
        -0.9 * largest,
        0.91 * largest,
        65504.0,
        65536.0,
        -65505.0,
        58944.0,
        58976.0,
        400.0,
        416.0,
        math.inf,
        -math.inf,
    ]
    with np.errstate(all="ignore"):
        values = np.array(finite + near).astype(dtype)
    nans = np.array([math.nan, -math.nan]).astype(dtype)
    bits = np.dtype(f"u{dtype.itemsize}")
    payload = (nans.view(bits) | np.array([1], bits)).astype(bits).view(dtype)
    return np.concatenate([values, nans, payload])


def content(dtype: np.dtype[Any], size: int, kind: str, rng: np.random.Generator) -> NDArray[Any]:
    if kind == "bytes":
        return np.frombuffer(rng.bytes(size * dtype.itemsize), dtype)
    if kind == "special":
        return rng.choice(special(dtype), size)
    spread = (
        2.0 ** rng.integers(-1070, 1020)
        if dtype.name in ("float64", "complex128") and rng.random() < 0.5
        else 3.0
    )
    with np.errstate(all="ignore"):
        plain = (rng.standard_normal(size) * spread).astype(dtype)
        if dtype.kind == "c":
            plain = (plain + 1j * (rng.standard_normal(size) * spread)).astype(dtype)
    if kind == "plain":
        return plain
    return np.where(
        rng.random(size) < 0.01, rng.choice(special(dtype), size), plain
    )  # a few among many


def laid_out(flat: NDArray[Any], layout: str, rng: np.random.Generator) -> NDArray[Any]:
    """The elements in a layout that has to be gathered, or that starts at an odd address; zero
    strides repeat some of them.
    """
    if layout == "unaligned":
        return np.frombuffer(b"x" + flat.tobytes(), np.uint8)[1:].view(flat.dtype)
    if layout == "contiguous" or flat.size < 4:
        return flat
    if layout == "reversed":
        return flat[:: -int(rng.integers(1, 4))]
    columns = int(rng.integers(1, min(flat.size, 70) + 1))
    grid = flat[: flat.size // columns * columns].reshape(-1, columns)
    if layout == "transposed":
        return grid.T
    if layout == "sliced":
        return grid[::-2, 1::3]
    if layout == "expanded":
        return np.broadcast_to(grid[:, None, :], (grid.shape[0], 2, columns)).transpose(1, 2, 0)
    return grid.reshape(grid.shape[0], 1, columns, 1)[:, :, ::2]


LAYOUTS = (
    "contiguous",
    "unaligned",
    "reversed",
    "transposed",
    "sliced",
    "expanded",
    "odd dimensions",
)


@st.composite
def arrays(draw: st.DrawFn, names: tuple[str, ...] = DTYPES) -> NDArray[Any]:
    dtype = np.dtype(draw(st.sampled_from(names)))
    size = draw(st.sampled_from(LENGTHS) | st.integers(0, 9000))
    kind = draw(st.sampled_from(("bytes", "special", "plain", "a few")))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    found = laid_out(content(dtype, size, kind, rng), draw(st.sampled_from(LAYOUTS)), rng)
    return found.reshape(()) if found.size == 1 and draw(st.booleans()) else found


def differences(
    found: Statistics, wanted: Statistics, array: NDArray[Any], *, loose: tuple[str, ...] = ()
) -> list[str]:
    """Everything exactly equal, bit for bit; mean and l2norm to 1e-12, the mean's relative to the
    mean magnitude; `loose` to one ulp.
    """
    one, other = msgspec.structs.asdict(found), msgspec.structs.asdict(wanted)
    wrong = []
    for name in (name for name in one if name not in ("mean", "l2norm")):
        close = (
            name in loose
            and one[name] is not None
            and abs(one[name] - other[name]) <= math.ulp(other[name])
        )
        if repr(one[name]) != repr(other[name]) and not close:
            wrong.append(f"{name} {one[name]!r} not {other[name]!r}")
    if wanted.mean is None or wanted.l2norm is None or found.mean is None or found.l2norm is None:
        return (
            wrong
            if (found.mean, found.l2norm) == (wanted.mean, wanted.l2norm)
            else [*wrong, "mean or l2norm absent"]
        )
    if abs(found.mean - wanted.mean) > 1e-12 * mean_magnitude(array) + 1e-323:
        wrong.append(f"mean {found.mean!r} not {wanted.mean!r}")
    if (
        found.l2norm != wanted.l2norm
        and not abs(found.l2norm - wanted.l2norm) <= 1e-12 * wanted.l2norm + 1e-323
    ):
        wrong.append(f"l2norm {found.l2norm!r} not {wanted.l2norm!r}")
    return wrong


def mean_magnitude(array: NDArray[Any]) -> float:
    with np.errstate(all="ignore"):
        value = np.abs(
            reference.magnitudes(np.ascontiguousarray(array).reshape(-1)).astype(np.float64)
        )
    value = value[np.isfinite(value)]
    return float(np.sum(value / value.size))
