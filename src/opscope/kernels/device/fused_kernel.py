# SPDX-License-Identifier: Apache-2.0
"""The fused kernel in Triton: statistics and digest of tensors of one type, each element read once,
in one launch. Only `fused` imports this module, and only where such a kernel is wanted.

A program goes through `span` blocks of 512 words of 8 bytes, the blocks of the digest
(kernels/reference.py), and writes one row of COLUMNS int64 (fused.Column). Elements are loaded as
bits and decoded by integer operations, so that types without arithmetic on a device are read too.

Sums are integers: elements are scaled by the power of two under the largest magnitude that the
program has met and rounded to 2**-40 of it. Integers add up exactly and in any order, so every
device answers the same, mean and l2norm have an error that can be stated (under 2**-20 of the
squares where one element dwarfs all others), and no float64 is needed. Elements of magnitude up to
CUT and beyond are summed apart, so that a mask of finfo.min hides nothing.
"""

from __future__ import annotations

import triton
import triton.language as tl

WORDS = tl.constexpr(512)
COLUMNS = tl.constexpr(16)
CUT = tl.constexpr(8192.0)
GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)
LOWEST = tl.constexpr(-64)
FIXED = tl.constexpr(1099511627776.0)  # 2**40


@triton.jit
def mix(h):
    h = (h ^ (h >> 33)) * 0xFF51AFD7ED558CCD
    h = (h ^ (h >> 33)) * 0xC4CEB9FE1A85EC53
    return h ^ (h >> 33)


@triton.jit
def float8_e4m3fn(bits):
    """float32 of elements that have no infinity: all ones are NaN."""
    rest = (bits & 0x7F).to(tl.uint32)
    normal = ((rest << 20) + (120 << 23)).to(tl.float32, bitcast=True)
    size = tl.where(rest < 8, rest.to(tl.float32) * 0.001953125, normal)
    size = tl.where(rest == 0x7F, float("nan"), size)
    return tl.where(bits >= 0x80, -size, size)


@triton.jit
def magnitude(bits):
    """float64 of complex64: NaN where either part is, else infinite where either is."""
    re = (bits & 0xFFFFFFFF).to(tl.uint32).to(tl.float32, bitcast=True).to(tl.float64)
    im = (bits >> 32).to(tl.uint32).to(tl.float32, bitcast=True).to(tl.float64)
    size = tl.sqrt(re * re + im * im)
    size = tl.where((tl.abs(re) == float("inf")) | (tl.abs(im) == float("inf")), float("inf"), size)
    return tl.where((re != re) | (im != im), float("nan"), size)


@triton.jit
def decoded(bits, NAME: tl.constexpr):
    """Floats as float32 or float64, integers as int64 or uint64."""
    if NAME == "float32":
        value = bits.to(tl.float32, bitcast=True)
    elif NAME == "float64":
        value = bits.to(tl.float64, bitcast=True)
    elif NAME == "float16":
        value = bits.to(tl.float16, bitcast=True).to(tl.float32)
    elif NAME == "bfloat16":
        value = (bits.to(tl.uint32) << 16).to(tl.float32, bitcast=True)
    elif NAME == "float8_e5m2":
        value = (bits.to(tl.uint16) << 8).to(tl.float16, bitcast=True).to(tl.float32)
    elif NAME == "float8_e4m3fn":
        value = float8_e4m3fn(bits)
    elif NAME == "complex64":
        value = magnitude(bits)
    elif NAME == "bool":
        value = (bits != 0).to(tl.int64)
    elif NAME == "int8":
        value = bits.to(tl.int8, bitcast=True).to(tl.int64)
    elif NAME == "int16":
        value = bits.to(tl.int16, bitcast=True).to(tl.int64)
    elif NAME == "int32":
        value = bits.to(tl.int32, bitcast=True).to(tl.int64)
    elif NAME == "int64":
        value = bits.to(tl.int64, bitcast=True)
    elif NAME == "uint64":
        value = bits
    else:
        value = bits.to(tl.int64)
    return value


@triton.jit
def biased(value):
    """A float's exponent as it is stored, of one that is not negative."""
    if value.dtype == tl.float64:
        exponent = value.to(tl.int64, bitcast=True) >> 52
    else:
        exponent = value.to(tl.int32, bitcast=True).to(tl.int64) >> 23
    return exponent


@triton.jit
def exponent_of(largest):
    """As it would be stored if it could be below 1: of subnormal numbers, which are read when they
    have been made larger; of zero LOWEST.
    """
    plain = biased(largest)
    return tl.where(plain == 0, biased(largest * 18446744073709551616.0) + LOWEST, plain)


@triton.jit
def power_of(exponent, VALUE: tl.constexpr):
    if VALUE == tl.float64:
        power = ((1023 + exponent) << 52).to(tl.float64, bitcast=True)
    else:
        power = ((127 + exponent) << 23).to(tl.int32).to(tl.float32, bitcast=True)
    return power


@triton.jit
def scaled_by(value, exponent):
    """A value over the power of two of an exponent, by two powers that are normal numbers."""
    if value.dtype == tl.float64:
        less = 1023 - exponent
    else:
        less = 127 - exponent
    half = less >> 1
    return value * power_of(half, value.dtype) * power_of(less - half, value.dtype)


@triton.jit
def added(exponent, total, squares, value):
    """Exponent, sum and sum of squares so far, with those of a block, zero where it has no
    part.
    """
    now = tl.maximum(exponent, exponent_of(tl.max(tl.max(tl.abs(value), 1), 0)))
    total = total >> tl.minimum(now - exponent, 63)
    squares = squares >> tl.minimum(2 * (now - exponent), 63)
    scaled = scaled_by(value, now)
    fixed = (scaled * FIXED).to(tl.int64)
    square = (scaled * scaled * FIXED + 0.5).to(tl.int64)
    return now, total + tl.sum(tl.sum(fixed, 1), 0), squares + tl.sum(tl.sum(square, 1), 0)


@triton.jit
def number_of(mask):
    return tl.sum(tl.sum(mask.to(tl.int32), 1), 0).to(tl.int64)


@triton.jit
def share(words, held, block):
    """What a block of words adds to the digest; those not held are none of it."""
    place = tl.arange(0, WORDS).to(tl.uint64)
    x = tl.where(held, words ^ mix((place + 1) * GOLDEN), 0)
    product = tl.sum((x & 0xFFFFFFFF) * (x >> 32), 0)
    return mix(product ^ mix(tl.sum(x, 0) + (block + 1).to(tl.uint64) * GOLDEN))


@triton.jit
def offsets(index, RANK: tl.constexpr, d1, d2, d3, s0, s1, s2, s3):
    """Where the elements lie whose number in C order is index; of rank 0 side by side."""
    if RANK == 0:
        offset = index
    else:
        offset = index * 0
        if RANK > 3:
            offset += index % d3 * s3
            index = index // d3
        if RANK > 2:
            offset += index % d2 * s2
            index = index // d2
        if RANK > 1:
            offset += index % d1 * s1
            index = index // d1
        offset += index * s0
    return offset


@triton.jit
def word_of(value):
    """The bits of a number, as int64."""
    if value.dtype == tl.float32:
        word = value.to(tl.int32, bitcast=True).to(tl.int64)
    else:
        word = value.to(tl.int64, bitcast=True)
    return word


@triton.jit
def place_of(table, tensors, program):
    """Address, size and first program of the tensor that a program reads part of."""
    row = program * 0
    for other in range(1, tensors):
        row = tl.where(program >= tl.load(table + other * 3 + 2), other, row)
    return tl.load(table + row * 3), tl.load(table + row * 3 + 1), tl.load(table + row * 3 + 2)


@triton.jit
def loaded(source, block, size, RANK: tl.constexpr, d1, d2, d3, s0, s1, s2, s3):
    """The bits of a block's elements, zero beyond the tensor's end, which of them it has, and what
    the block adds to the digest.
    """
    WIDTH: tl.constexpr = source.dtype.element_ty.primitive_bitwidth
    PER: tl.constexpr = 64 // WIDTH
    word, part = tl.arange(0, WORDS).to(tl.int64), tl.arange(0, PER).to(tl.int64)
    index = word[:, None] * PER + part[None, :] + block * WORDS * PER
    held = index < size
    places = source + offsets(index, RANK, d1, d2, d3, s0, s1, s2, s3)
    if (block + 1) * WORDS * PER <= size:  # without a mask whole vectors are loaded
        bits = tl.load(places)
    else:
        bits = tl.load(places, held, 0)
    words = tl.sum(bits.to(tl.uint64) << (part * WIDTH).to(tl.uint64)[None, :], 1)
    return bits, held, share(words, word * PER + block * WORDS * PER < size, block)


@triton.jit
def store_ends(row, low, high, digest):
    tl.store(row + 6, word_of(low))
    tl.store(row + 7, word_of(high))
    tl.store(row + 15, digest.to(tl.int64, bitcast=True))


@triton.jit
def store_sums(place, exponent, total, squares):
    tl.store(place, exponent)
    tl.store(place + 1, total)
    tl.store(place + 2, squares)


@triton.jit
def floats(
    row, source, begin, end, size, d1, d2, d3, s0, s1, s2, s3,
    NAME: tl.constexpr, VALUE: tl.constexpr, NEAR: tl.constexpr, RANK: tl.constexpr,
):  # fmt: skip
    """Store what is found in the blocks of a program."""
    none = begin * 0
    nan, plus, minus, zero, neg, near, core = none, none, none, none, none, none, none
    core_exponent, core_total, core_squares = none + LOWEST, none, none
    exponent, total, squares = none + LOWEST, none, none
    low, high = tl.full((), float("inf"), VALUE), tl.full((), float("-inf"), VALUE)
    digest = none.to(tl.uint64)
    for place in range(begin, end):
        bits, held, shared = loaded(source, none + place, size, RANK, d1, d2, d3, s0, s1, s2, s3)
        digest += shared
        value = decoded(bits, NAME)
        finite = held & (tl.abs(value) < float("inf"))
        close = finite & (tl.abs(value) <= CUT)
        zero += number_of(held & (value == 0))
        neg += number_of(finite & (value < 0))
        low = tl.minimum(low, tl.min(tl.min(tl.where(finite, value, low), 1), 0))
        high = tl.maximum(high, tl.max(tl.max(tl.where(finite, value, high), 1), 0))
        here = number_of(close)
        core += here
        core_exponent, core_total, core_squares = added(
            core_exponent, core_total, core_squares, tl.where(close, value, 0.0)
        )
        if (here < number_of(held)) | (NEAR < CUT):  # most blocks have nothing of all this
            nan += number_of(held & (value != value))
            plus += number_of(held & (value == float("inf")))
            minus += number_of(held & (value == float("-inf")))
            near += number_of(finite & (tl.abs(value) > NEAR))
            far = tl.where(finite & (tl.abs(value) > CUT), value, 0.0)
            exponent, total, squares = added(exponent, total, squares, far)
    tl.store(row, nan)
    tl.store(row + 1, plus)
    tl.store(row + 2, minus)
    tl.store(row + 3, zero)
    tl.store(row + 4, neg)
    tl.store(row + 5, near)
    tl.store(row + 8, core)
    store_sums(row + 9, core_exponent, core_total, core_squares)
    store_sums(row + 12, exponent, total, squares)
    store_ends(row, low, high, digest)


@triton.jit
def integers(
    row, source, begin, end, size, d1, d2, d3, s0, s1, s2, s3,
    NAME: tl.constexpr, TOP: tl.constexpr, BOTTOM: tl.constexpr, VALUE: tl.constexpr,
    RANK: tl.constexpr,
):  # fmt: skip
    """Store what is found in the blocks of a program."""
    none = begin * 0
    zero, neg, upper, lower = none, none, none, none
    exponent, squares = none + LOWEST, none
    low, high = tl.full((), TOP, VALUE), tl.full((), BOTTOM, VALUE)
    digest = none.to(tl.uint64)
    for place in range(begin, end):
        bits, held, shared = loaded(source, none + place, size, RANK, d1, d2, d3, s0, s1, s2, s3)
        digest += shared
        value = tl.where(held, decoded(bits, NAME), 0)
        zero += number_of(held & (value == 0))
        neg += number_of(value < 0)
        low = tl.minimum(low, tl.min(tl.min(tl.where(held, value, low), 1), 0))
        high = tl.maximum(high, tl.max(tl.max(tl.where(held, value, high), 1), 0))
        upper += tl.sum(tl.sum((value >> 32).to(tl.int64), 1), 0)
        lower += tl.sum(tl.sum((value & 0xFFFFFFFF).to(tl.int64), 1), 0)
        exponent, _, squares = added(exponent, none, squares, value.to(tl.float32))
    for column in tl.static_range(12):
        tl.store(row + column, none)
    tl.store(row + 3, zero)
    tl.store(row + 4, neg)
    tl.store(row + 10, upper)
    store_sums(row + 12, exponent, lower, squares)
    store_ends(row, low, high, digest)


@triton.jit(do_not_specialize=[2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12])
def statistics(
    rows, table, tensors: "i32", span: "i64", address: "i64", size: "i64",
    d1: "i64", d2: "i64", d3: "i64", s0: "i64", s1: "i64", s2: "i64", s3: "i64",
    NAME: tl.constexpr, BITS: tl.constexpr, VALUE: tl.constexpr, NEAR: tl.constexpr,
    TOP: tl.constexpr, BOTTOM: tl.constexpr, RANK: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    """Write one row of what is found in the blocks of this program.

    Of several tensors the table has address, size in elements and first program of each; one needs
    no table, and may have, by RANK, lengths (any, d1, d2, d3) and strides s0 to s3 in elements.
    Elements are loaded as BITS and decoded to VALUE, whose ends are TOP and BOTTOM; NEAR is the
    magnitude near the limit of the tensor's own type; ALIGNED addresses are multiples of 16.
    """
    program = tl.program_id(0).to(tl.int64)
    first = program * 0
    if tensors > 1:
        address, size, first = place_of(table, tensors, program)
    BLOCK: tl.constexpr = WORDS * (64 // BITS.primitive_bitwidth)
    begin = (program - first) * span
    end = tl.minimum(begin + span, (size + BLOCK - 1) // BLOCK)
    row = rows + program * COLUMNS
    source = address.to(tl.pointer_type(BITS))
    if ALIGNED:
        source = tl.multiple_of(source, 16)
    if VALUE.is_floating():
        floats(row, source, begin, end, size, d1, d2, d3, s0, s1, s2, s3, NAME, VALUE, NEAR, RANK)
    else:
        integers(
            row, source, begin, end, size, d1, d2, d3, s0, s1, s2, s3,
            NAME, TOP, BOTTOM, VALUE, RANK,
        )  # fmt: skip
