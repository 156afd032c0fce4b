# SPDX-License-Identifier: Apache-2.0
"""What the kernels compute, in plain NumPy: the definition that the compiled kernels equal, and
their stand-in where they are missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from opscope.arrays import Array, Ints, Words
from opscope.narrow import is_narrow, limits, name_of, widened

BLOCK_WORDS = 512
GOLDEN = 0x9E3779B97F4A7C15
LENGTH = 0xC2B2AE3D27D4EB4F
MASK = 0xFFFFFFFFFFFFFFFF
CHUNK_BYTES = 512 * 8 * BLOCK_WORDS  # bounds the memory that the intermediate arrays take
NEAR = 0.9
LIMIT = 65504.0
MANTISSAS = (1.03, 1.15, 1.29, 1.41, 1.53, 1.67, 1.79, 1.93)
FEWEST, MOST = 8, 8192  # elements of which statistics hold a sample
HUGE = 8192.0  # as masks are filled with


class Statistics(msgspec.Struct, frozen=True):
    """What one pass over an array tells; fields are columns of table tensors, absent ones None.

    `nan`, `pos_inf`, `neg_inf`, `zero`, `neg` and `pos` are counts that add up to `size`; `neg` and
    `pos` are of finite elements, and -0 is a zero. `near_limit` counts finite elements beyond 0.9
    of the largest finite value (float16 and float8) or beyond 65504 (other floating types); None
    where it is only known that there are some. `min`, `max`, `mean` and `l2norm` are over the
    finite elements, of a complex array over the magnitudes; a complex element is NaN when either
    part is, else `pos_inf` when either part is infinite. `min_int` and `max_int` are exact, of
    integers and booleans that fit in 64 signed bits. `digest` is what `digest()` answers, `sample`
    what `sample()` does, of FEWEST to MOST elements of float32 or float64.
    """

    size: int
    nan: int
    pos_inf: int
    neg_inf: int
    zero: int
    neg: int
    pos: int
    near_limit: int | None
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    l2norm: float | None = None
    min_int: int | None = None
    max_int: int | None = None
    digest: int | None = None
    sample: tuple[float, ...] | None = None


def mix(h: int) -> int:
    """Scatters 64 bits over 64 bits, one to one: the finalizer of MurmurHash3 (Austin Appleby,
    public domain).
    """
    h = ((h ^ (h >> 33)) * 0xFF51AFD7ED558CCD) & MASK
    h = ((h ^ (h >> 33)) * 0xC4CEB9FE1A85EC53) & MASK
    return h ^ (h >> 33)


KEYS: tuple[int, ...] = tuple(mix((i + 1) * GOLDEN & MASK) for i in range(BLOCK_WORDS))


def digest(array: Array) -> int:
    """Answers 64 bits that depend on every bit of the array's elements and on where it stands, the
    same on every device.

    Let the bytes be those of the elements in C order, little-endian, padded with zeros to a
    multiple of 8, and w[0], w[1], … the 64-bit words they form. All arithmetic is modulo 2**64; lo
    and hi are a word's lower and upper 32 bits; mix() is above. With

        key[i]     = mix((i + 1) * 0x9E3779B97F4A7C15)             i = 0 … 511
        x[b, i]    = w[512 b + i] ^ key[i]                         the last block may be short
        product[b] = sum over i of lo(x[b, i]) * hi(x[b, i])
        plain[b]   = sum over i of x[b, i]
        total      = sum over b of mix(product[b] ^ mix(plain[b] + (b + 1) * 0x9E3779B97F4A7C15))

    the digest is mix(total + n * 0xC2B2AE3D27D4EB4F), n the number of bytes before padding. Type
    and shape are not part of it.

    The keys make a word's share depend on its place in its block, the mix a block's share on its
    place in the array, so exchanged, repeated and sign-flipped elements or blocks show. A change of
    a single word always changes `plain`. The product of a word's halves is that of XXH3 (Yann
    Collet) and NH (Black et al., UMAC, 1999): arrays that differ in many words of a block agree
    with a chance of about 2**-64, and at worst, where they differ in chosen bits of two words of
    one block, of 2**-33. It is no cryptographic hash. Blocks can be summed in any order and on any
    number of threads.
    """
    return _digest(_flat(array))


def statistics(array: Array, *, digest: bool = True) -> Statistics:
    """Answers the statistics of an array of any shape and strides; raises TypeError for a type that
    is no number.
    """
    limit = near_limit(array.dtype)
    flat = _flat(array)
    counts = np.zeros(7, np.int64)
    low, high = [], []
    with np.errstate(all="ignore"):
        for part in _parts(flat):
            value = magnitudes(part)
            finite = value[np.isfinite(value)]
            counts += _counts(value, finite, limit)
            if finite.size:
                low.append(finite.min())
                high.append(finite.max())
        counted: list[Any] = counts.tolist()
        record = Statistics(array.size, *counted)
        if digest:
            record = replace(record, digest=_digest(flat))
        if FEWEST <= flat.size <= MOST and flat.dtype.name in ("float32", "float64"):
            record = replace(record, sample=sample(flat))
        if not low:
            return record
        mean, l2norm = _moments(flat, max(abs(float(min(low))), abs(float(max(high)))))
    record = replace(
        record, min=float(min(low)) + 0.0, max=float(max(high)) + 0.0, mean=mean, l2norm=l2norm
    )
    if low[0].dtype.kind == "f" or int(max(high)) >= 2**63:
        return record
    return replace(record, min_int=int(min(low)), max_int=int(max(high)))


def sample(values: Array) -> tuple[float, ...] | None:
    """Of each of MANTISSAS the element, as a float32, whose mantissa is nearest; of several the
    largest by magnitude, of two of one magnitude the negative one. None where no element counts:
    zeros, denormals, what is not finite and what masks are filled with do not.

    No order of the elements changes it, rounding seldom does, and of two arrays one of which has
    the elements of the other and more, as many are the same as the part's share is: min-wise
    hashing (Broder, 1997) with a function that rounding changes next to nothing.
    """
    with np.errstate(all="ignore"):
        bits = np.ravel(values).astype(np.float32).view(np.uint32)
    magnitude = bits & np.uint32(0x7FFFFFFF)
    bits = bits[(magnitude >= 0x00800000) & (magnitude <= np.float32(HUGE).view(np.uint32))]
    if not bits.size:
        return None
    wanted = np.array(MANTISSAS, dtype=np.float32).view(np.uint32) & 0x007FFFFF
    distance = np.abs((bits & 0x007FFFFF).astype(np.int64)[:, None] - wanted)
    rank = (bits << np.uint32(1)) | (bits >> np.uint32(31))
    chosen = np.where(distance == distance.min(axis=0), rank[:, None], 0).max(axis=0)
    found = (chosen >> np.uint32(1)) | (chosen << np.uint32(31))
    return tuple(found.astype(np.uint32).view(np.float32).tolist())


def near_limit(dtype: np.dtype[Any]) -> float:
    """Answers the magnitude beyond which a finite element is near its type's limit: infinity for
    integers; raises TypeError.
    """
    name = name_of(dtype)
    if dtype.kind in "biu" or name.startswith(("int", "uint")):
        return math.inf
    if name in ("float32", "float64", "bfloat16", "complex64", "complex128"):
        return LIMIT
    if name == "float16" or is_narrow(dtype):
        return NEAR * limits(dtype).largest
    raise TypeError(
        f"no statistics of elements of type {dtype}: they are no numbers of at most 64 bits "
        "(128 if complex)"
    )


def magnitudes(part: Array) -> Array:
    """Answers the numbers that statistics are taken of: floats in float64, integers as they are, of
    complex elements the magnitude.

    The magnitude is the float64 sqrt(re * re + im * im), every operation rounded; a complex128
    whose larger part is not within 2**±400 is first divided by a power of two, and a magnitude
    beyond the largest float64 is that.
    """
    if part.dtype.kind == "b":
        return np.asarray(part.view(np.uint8) != 0).astype(np.int64)
    if part.dtype.kind in "iu":
        return part
    if part.dtype.name.startswith(("int", "uint")):  # int4 and the like
        return np.asarray(part.astype(np.int64))
    if part.dtype.kind != "c":
        return np.asarray(widened(part).astype(np.float64))
    re, im = np.abs(part.real.astype(np.float64)), np.abs(part.imag.astype(np.float64))
    if part.dtype.name == "complex64":
        return np.asarray(np.sqrt(re * re + im * im))
    larger = np.maximum(re, im)
    plain = (larger >= 2.0**-400) & (larger <= 2.0**400)
    scale = np.where(plain, 1.0, np.where(larger > 1, 2.0**-600, 2.0**600))
    x, y = re * scale, im * scale
    lengths = np.minimum(np.sqrt(x * x + y * y) / scale, np.finfo(np.float64).max)
    lengths = np.where(np.isinf(re) | np.isinf(im), np.inf, lengths)
    return np.asarray(np.where(np.isnan(re) | np.isnan(im), np.nan, lengths))


def _counts(value: Array, finite: Array, limit: float) -> Ints:
    """Answers nan, pos_inf, neg_inf, zero, neg, pos, near_limit."""
    near = 0 if limit == math.inf else int((np.abs(finite) > limit).sum())
    zero, neg = int((finite == 0).sum()), int((finite < 0).sum())
    nan, pos_inf, neg_inf = (
        int(np.isnan(value).sum()),
        int((value == np.inf).sum()),
        int((value == -np.inf).sum()),
    )
    return np.array([nan, pos_inf, neg_inf, zero, neg, finite.size - zero - neg, near], np.int64)


def _moments(flat: Array, largest: float) -> tuple[float, float]:
    """Answers mean and l2norm of the finite elements; scaled by a power of two, so that neither
    sums nor squares leave float64.
    """
    exponent = math.frexp(largest)[1]
    count, total, squares = 0, 0.0, 0.0
    for part in _parts(flat):
        value = magnitudes(part)
        scaled = np.ldexp(value[np.isfinite(value)].astype(np.float64), -exponent)
        count += scaled.size
        total += float(scaled.sum())
        squares += float(np.square(scaled).sum())
    return float(np.ldexp(total / count, exponent)), float(np.ldexp(math.sqrt(squares), exponent))


def _flat(array: Array) -> Array:
    """Answers the elements in C order, little-endian."""
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return np.ascontiguousarray(array).reshape(-1)


def _parts(flat: Array) -> Iterator[Array]:
    step = CHUNK_BYTES // flat.itemsize
    for start in range(0, flat.size, step):
        yield flat[start : start + step]


def _words(flat: Array) -> Iterator[tuple[int, Words]]:
    """Yields the number of the first block and the words of whole blocks; the last may be short and
    padded with zeros.
    """
    content = flat.view(np.uint8)
    for start in range(0, content.size, CHUNK_BYTES):
        part = content[start : start + CHUNK_BYTES]
        padded = np.zeros(-(-part.size // 8) * 8, np.uint8)
        padded[: part.size] = part
        yield start // (8 * BLOCK_WORDS), padded.view(np.uint64)


def _block_sums(words: Words, first: int) -> int:
    whole = words.size // BLOCK_WORDS * BLOCK_WORDS
    numbers = np.arange(first + 1, first + 1 + words.size // BLOCK_WORDS, dtype=np.uint64)
    total = int(_shares(words[:whole].reshape(-1, BLOCK_WORDS), numbers).sum(dtype=np.uint64))
    if whole != words.size:
        total += int(
            _shares(words[whole:].reshape(1, -1), np.array([first + 1 + numbers.size], np.uint64))[
                0
            ]
        )
    return total


def _shares(words: Words, numbers: Words) -> Words:
    x = words ^ np.array(KEYS[: words.shape[1]], np.uint64)
    products = ((x & np.uint64(0xFFFFFFFF)) * (x >> np.uint64(32))).sum(axis=1, dtype=np.uint64)
    return _mixed(products ^ _mixed(x.sum(axis=1, dtype=np.uint64) + numbers * np.uint64(GOLDEN)))


def _mixed(h: Words) -> Words:
    shift = np.uint64(33)
    h = (h ^ (h >> shift)) * np.uint64(0xFF51AFD7ED558CCD)
    h = (h ^ (h >> shift)) * np.uint64(0xC4CEB9FE1A85EC53)
    return h ^ (h >> shift)


def _digest(flat: Array) -> int:
    total = sum(_block_sums(words, first) for first, words in _words(flat))
    return mix((total + flat.nbytes * LENGTH) & MASK)
