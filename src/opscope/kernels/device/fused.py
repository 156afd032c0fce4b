# SPDX-License-Identifier: Apache-2.0
"""Statistics and digest of device tensors by one kernel that reads each element once
(fused_kernel.py), whatever the device that Triton has a back end for.

Nothing is fetched and nothing waits: `launch` answers rows on the device, `read` makes a record of
them on the host. Counts, extremes and digest equal those of the host's kernels; mean and l2norm
agree with them to 1e-6 of the largest magnitude and of themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opscope import narrow
from opscope.arrays import Ints
from opscope.kernels.reference import LENGTH, MASK, Statistics, mix, near_limit

BLOCK_BYTES = 4096
PROGRAMS = 1024  # aimed at for a launch; rows of 128 bytes travel to the host
SPANS = (4, 128)  # blocks of a program: beyond the larger, sums would leave int64
FIXED = 40  # binary places of sums
RANKS = 4
INTEGERS = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
WIDE = ("float64", "complex64")  # what is computed in float64
FLOATS = ("float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2", *WIDE)
NAMES = (*INTEGERS, *FLOATS)


class Column(IntEnum):
    """Of a row: what fused_kernel.statistics stores. Of floats CORE* is of magnitudes up to its
    CUT, the plain columns of larger ones; sums are scaled by the power of two of the exponent. Of
    integers CORE_TOTAL and TOTAL are the sums of upper and lower 32 bits.
    """

    NAN = 0
    POS_INF = 1
    NEG_INF = 2
    ZERO = 3
    NEG = 4
    NEAR = 5
    LOW = 6
    HIGH = 7
    CORE = 8
    CORE_EXPONENT = 9
    CORE_TOTAL = 10
    CORE_SQUARES = 11
    EXPONENT = 12
    TOTAL = 13
    SQUARES = 14
    DIGEST = 15


def name_of(dtype: Any) -> str:
    """The name of a torch type, as NumPy and opscope.narrow have it."""
    return str(dtype).removeprefix("torch.")


def blocks_of(tensor: Any) -> int:
    return -(-int(tensor.nbytes) // BLOCK_BYTES)


def span_of(blocks: int) -> int:
    """Blocks that one program goes through, of so many of a launch."""
    least, most = SPANS
    return min(most, max(least, blocks // PROGRAMS))


def collapsed(tensor: Any) -> tuple[list[int], list[int]] | None:
    """Lengths and strides of a tensor with axes joined that are one in memory: none of a contiguous
    one. None where more than four are left.
    """
    if tensor.is_contiguous():
        return [], []
    lengths, strides = list[int](), list[int]()
    for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
        if length == 1:
            continue
        if strides and strides[-1] == stride * length:
            lengths[-1] *= length
            strides[-1] = stride
        else:
            lengths.append(length)
            strides.append(stride)
    return (lengths, strides) if len(lengths) <= RANKS else None


def launch(torch: Any, tensor: Any) -> list[Any]:
    """The rows of one tensor, as int16 words in one piece."""
    (rows,) = launch_all(torch, [tensor])
    return [rows.view(-1).view(torch.int16)]


def launch_all(torch: Any, tensors: Sequence[Any]) -> list[Any]:
    """Rows of each tensor on their device, int64 of shape (programs, 16), by one launch.

    The tensors have one type of NAMES and one device, are strided, not empty, without a conjugate
    or negative bit; all but a lone one are contiguous. What has more than four separate axes is
    copied first.
    """
    layout = collapsed(tensors[0]) if len(tensors) == 1 else ([], [])
    if layout is None:
        tensors, layout = [tensors[0].contiguous()], ([], [])
    blocks = [blocks_of(each) for each in tensors]
    span = span_of(sum(blocks))
    programs = [-(-count // span) for count in blocks]
    firsts = [sum(programs[:number]) for number in range(len(programs))]
    rows = torch.empty((sum(programs), len(Column)), dtype=torch.int64, device=tensors[0].device)
    table = rows if len(tensors) == 1 else table_of(torch, tensors, firsts)
    run(rows, table, tensors, span=span, layout=layout)
    return [rows[first : first + count] for first, count in zip(firsts, programs, strict=True)]


def table_of(torch: Any, tensors: Sequence[Any], firsts: Sequence[int]) -> Any:
    """Where each tensor lies, how many elements it has and which program begins it: on the way to
    the device, in the order of its stream.
    """
    told = [
        [each.data_ptr(), each.numel(), first] for each, first in zip(tensors, firsts, strict=True)
    ]
    host = torch.tensor(told, dtype=torch.int64)
    device = tensors[0].device
    return host if device.type == "cpu" else host.pin_memory().to(device, non_blocking=True)


def run(
    rows: Any,
    table: Any,
    tensors: Sequence[Any],
    *,
    span: int,
    layout: tuple[list[int], list[int]],
) -> None:
    lengths, strides = layout
    rank = len(lengths)
    padded = [0] * (RANKS - rank)
    first = tensors[0]
    launcher(first.device)[(rows.shape[0],)](
        *(rows, table, len(tensors), span, first.data_ptr(), first.numel()),
        *([*lengths, *padded][1:] if rank else padded[1:]),
        *strides,
        *padded,
        **constants(name_of(first.dtype)),
        RANK=rank,
        ALIGNED=rank == 0 and all(each.data_ptr() % 16 == 0 for each in tensors),
        **options(name_of(first.dtype)),
    )


def launcher(device: Any) -> Any:  # noqa: ARG001 - a seam
    from opscope.kernels.device import fused_kernel

    return fused_kernel.statistics


def constants(name: str) -> dict[str, Any]:
    """What of the kernel depends on the element type."""
    import triton.language as tl

    numpy = narrow.numpy_type(name)
    value = tl.float64 if name in WIDE else tl.float32
    if name in INTEGERS:
        value = tl.uint64 if name == "uint64" else tl.int64
    top, bottom = math.inf, -math.inf
    if name in INTEGERS:
        top, bottom = (2**64 - 1, 0) if name == "uint64" else (2**63 - 1, -(2**63))
    return {
        "NAME": name,
        "BITS": {1: tl.uint8, 2: tl.uint16, 4: tl.uint32, 8: tl.uint64}[numpy.itemsize],
        "VALUE": value,
        "NEAR": near_limit(numpy),
        "TOP": top,
        "BOTTOM": bottom,
    }


def options(name: str) -> dict[str, Any]:
    """How many warps share a block, so that its elements stay in registers; a complex element's
    magnitude is defined with every operation rounded.
    """
    warps = {1: 8, 2: 4, 4: 4, 8: 4}[narrow.numpy_type(name).itemsize]
    return {"num_warps": warps} | ({"enable_fp_fusion": False} if name in WIDE else {})


def read(words: NDArray[np.int16], dtype: Any, size: int) -> Statistics:
    """The record of a tensor's rows, as int16 words; size is its number of elements.

    Raises ValueError for counts that no tensor of this size has: the device did not do what it was
    asked.
    """
    name, rows = name_of(dtype), rows_of(words)
    nan, pos_inf, neg_inf, zero, neg, near = (
        int(rows[:, column].sum()) for column in list(Column)[: Column.LOW]
    )
    count = size - nan - pos_inf - neg_inf
    counts = (size, nan, pos_inf, neg_inf, zero, neg, count - zero - neg, near)
    if min(counts) < 0:
        raise ValueError(f"a device counted more elements of a {dtype} tensor than its {size}")
    digest = digest_of(rows, size * narrow.numpy_type(name).itemsize)
    if not count:
        return Statistics(*counts, digest=digest)
    if name in INTEGERS:
        return integers(rows, counts, digest, name)
    low, high = extremes(rows, name)
    wide = name in WIDE
    mean, norm = moments(rows, count, bias=1023 if wide else 127)
    return Statistics(*counts, low + 0.0, high + 0.0, mean, norm, digest=digest)


def unsound(torch: Any, pieces: Sequence[Any], size: int) -> Any:  # noqa: ARG001 - as of lean
    """Whether any of the tensors has NaN or +Inf whose rows these are, all that `launch` answered:
    a truth value on the device.
    """
    rows = torch.cat(list(pieces)).view(torch.int64).view(-1, len(Column))
    return rows[:, : Column.NEG_INF].sum() != 0


def rows_of(words: NDArray[np.int16]) -> Ints:
    return words.copy().view(np.int64).reshape(-1, len(Column))


def digest_of(rows: Ints, size: int) -> int:
    total = int(rows[:, Column.DIGEST].view(np.uint64).sum(dtype=np.uint64))
    return mix((total + size * LENGTH) & MASK)


def extremes(rows: Ints, name: str) -> tuple[float, float]:
    ends = rows[:, [Column.LOW, Column.HIGH]].copy()
    values = ends.view(np.float64) if name in WIDE else ends.astype(np.int32).view(np.float32)
    return float(values[:, 0].min()), float(values[:, 1].max())


def moments(rows: Ints, count: int, *, bias: int) -> tuple[float, float]:
    """Mean and l2norm of floats, of small and large magnitudes together."""
    parts = [
        rows[:, Column.CORE_EXPONENT : Column.EXPONENT],
        rows[:, Column.EXPONENT : Column.DIGEST],
    ]
    return joined(np.concatenate(parts), count, bias=bias)


def core_of(words: NDArray[np.int16], dtype: Any) -> tuple[int, float | None, float | None]:
    """Number, mean and l2norm of the floats whose magnitude is at most CUT (docs/schema.md)."""
    rows = rows_of(words)
    count = int(rows[:, Column.CORE].sum())
    if not count:
        return 0, None, None
    bias = 1023 if name_of(dtype) in WIDE else 127
    return (count, *joined(rows[:, Column.CORE_EXPONENT : Column.EXPONENT], count, bias=bias))


def joined(sums: Ints, count: int, *, bias: int) -> tuple[float, float]:
    """Mean and l2norm of so many elements from rows of exponent, sum and sum of squares."""
    shared = int(sums[:, 0].max())
    below = sums[:, 0] - shared
    total = float(np.ldexp(sums[:, 1].astype(float), below).sum())
    squares = float(np.ldexp(sums[:, 2].astype(float), 2 * below).sum())
    return (
        float(np.ldexp(total / count, shared - bias - FIXED)),
        float(np.ldexp(math.sqrt(squares), shared - bias - FIXED // 2)),
    )


def integers(
    rows: Ints,
    counts: tuple[int, int, int, int, int, int, int, int],
    digest: int,
    name: str,
) -> Statistics:
    upper, lower = (int(rows[:, each].sum()) for each in (Column.CORE_TOTAL, Column.TOTAL))
    ends = rows[:, [Column.LOW, Column.HIGH]].copy()
    values = ends.view(np.uint64) if name == "uint64" else ends
    low, high = int(values[:, 0].min()), int(values[:, 1].max())
    _, norm = joined(rows[:, Column.EXPONENT : Column.DIGEST], counts[0], bias=127)
    mean = ((upper << 32) + lower) / counts[0]
    least, most = (None, None) if high >= 2**63 else (low, high)
    return Statistics(*counts, float(low), float(high), mean, norm, least, most, digest)
