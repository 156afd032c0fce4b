# SPDX-License-Identifier: Apache-2.0
"""Statistics of a device tensor by at most 12 plain tensor operators in float32 and int64, 8 for
floats; nothing is fetched, nothing waits.

Only operators that every accelerator of torch has are used (a product, comparisons, nan_to_num,
sums, extremes, a norm): an operator that is missing on a device may fail there after the call has
returned, and take the program with it. Counts and extremes are exact; mean and l2norm carry the
error of float32 sums, and are absent where their terms leave float32. How many elements lie near
the limit is known only where none does. There is no digest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opscope import narrow
from opscope.arrays import Array, Floats
from opscope.kernels.reference import Statistics, near_limit

CHUNK = 1 << 22  # elements that are worked on at once
FLOAT_COUNTS = 24  # int16 words: elements of value and -value from -inf, 0 and inf on, as int64
INTEGER_ENDS = 16  # zero and negative elements, least and largest as int64
SUMS = 4  # sum and norm as float32
# Types that every accelerator computes with: an NPU makes float32 of float64 and has no 8-bit
# floats.
NAMES = (
    *("float16", "bfloat16", "float32", "complex64"),
    *("bool", "uint8", "int8", "int16", "int32", "int64"),
)
# Types whose sums, squared too, stay within float32 whatever the elements are; on a device that
# saturates the others are not summed: that might raise a status which the program asks for.
SUMMED_SAFELY = ("float16", "bool", "uint8", "int8", "int16", "int32")
NAMES_WITHOUT_SUMS = ("bfloat16", "float32", "int64")


def ends_of(dtype: Any) -> np.dtype[Any]:
    """The type in which least and largest arrive: the tensor's own, of complex tensors that of the
    magnitude.
    """
    return narrow.numpy_type("float32" if dtype.is_complex else str(dtype).removeprefix("torch."))


class Comparands:
    """The few numbers that elements are multiplied and compared with, on each device and in each
    type that has asked: made once, since the host has to copy them there.
    """

    def __init__(self) -> None:
        self._made: dict[Any, tuple[Any, Any]] = {}

    def of(self, torch: Any, value: Any) -> tuple[Any, Any]:
        """A column of both signs, and one of bounds from which on elements are counted."""
        device_and_type = (value.device, value.dtype)
        if device_and_type not in self._made:
            given = {"dtype": value.dtype, "device": value.device}
            self._made[device_and_type] = (
                torch.tensor([[1], [-1]], **given),
                torch.tensor([[-math.inf], [0], [math.inf]], **given),
            )
        return self._made[device_and_type]


def launch(
    torch: Any, tensor: Any, *, sums: bool = True, comparands: Comparands | None = None
) -> list[Any]:
    """Pieces of int16 words on the tensor's device, those of each chunk in order; `read` takes them
    on the host, joined. sums: with mean and l2norm. comparands: those of the launches before.

    The tensor is strided and not empty, of a type that the device computes with; of complex
    elements the magnitudes are read.
    """
    if tensor.is_complex():
        parts = torch.view_as_real(tensor.resolve_conj())
        tensor = torch.where((parts != parts).any(-1), math.nan, tensor.abs())  # noqa: PLR0124 - abs hides a NaN beside an Inf
    known = Comparands() if comparands is None else comparands
    columns = []
    for part in torch.split(in_a_row(tensor), CHUNK):
        if tensor.is_floating_point():
            columns += float_columns(torch, part, *known.of(torch, part), sums=sums)
        else:
            columns += integer_columns(torch, part, sums=sums)
    return [column.reshape(-1).view(torch.int16) for column in columns]


def in_a_row(tensor: Any) -> Any:
    """The tensor's elements as one dimension, whatever their order: devices take no tensors of many
    dimensions. A view, but for memory with gaps.
    """
    order = sorted(range(tensor.dim()), key=lambda axis: -tensor.stride(axis))
    return tensor.permute(order).reshape(-1)


def float_columns(torch: Any, value: Any, signs: Any, bounds: Any, *, sums: bool) -> list[Any]:
    largest = torch.finfo(value.dtype).max
    both = value * signs
    counts = (both.unsqueeze(1) >= bounds).sum(2)
    ends = torch.nan_to_num(both, largest, largest, largest, out=both).amin(1)
    del both
    if not sums:
        return [counts, ends]
    finite = torch.nan_to_num(value, 0.0, 0.0, 0.0)
    total = finite.sum(dtype=torch.float32)
    return [counts, ends, total, torch.linalg.vector_norm(finite, dtype=torch.float32)]


def integer_columns(torch: Any, value: Any, *, sums: bool) -> list[Any]:
    if value.dtype is torch.bool:
        value = value.view(torch.uint8).clamp(max=1)  # any bits but zero are true
    kinds = torch.stack([value == 0, value < 0])
    ends = [value.amin().to(torch.int64), value.amax().to(torch.int64)]
    columns = [kinds.reshape(len(kinds), -1).sum(1), *ends]
    if sums:
        wide = value.to(torch.float32)
        columns += [wide.sum(), torch.linalg.vector_norm(wide)]
    return columns


def unsound(torch: Any, pieces: Sequence[Any], size: int) -> Any:
    """Whether any of the floats is NaN or +Inf of which these pieces tell, all that `launch`
    answered for so many elements: a truth value on the device, by 4 kernels.
    """
    counts = torch.cat([piece for piece in pieces if piece.numel() == FLOAT_COUNTS])
    numbers, _, pos_inf, *_ = counts.view(torch.int64).view(-1, 6).sum(0)
    return numbers - pos_inf != size


def read(words: NDArray[np.int16], dtype: Any, size: int, *, sums: bool = True) -> Statistics:
    """The record of what `launch` answered, all chunks joined; size is the number of elements,
    dtype the tensor's, sums as `launch` was told.

    Raises ValueError for counts that no tensor of this size has: the device did not do what it was
    asked.
    """
    floating = dtype.is_floating_point or dtype.is_complex
    if floating:
        statistics = read_floats(words, ends_of(dtype), size, SUMS if sums else 0)
    else:
        statistics = read_integers(words, size, SUMS if sums else 0)
    if (
        min(
            statistics.nan,
            statistics.pos_inf,
            statistics.neg_inf,
            statistics.zero,
            statistics.neg,
            statistics.pos,
        )
        < 0
    ):
        raise ValueError(f"a device counted more elements of a {dtype} tensor than its {size}")
    return statistics


def read_floats(words: NDArray[np.int16], ends: np.dtype[Any], size: int, sums: int) -> Statistics:
    exact = FLOAT_COUNTS + ends.itemsize  # two ends of so many bytes are so many words
    rows = words.reshape(-1, exact + sums)
    numbers, from_zero, pos_inf, _, to_zero, neg_inf = (
        int(count) for count in part(rows, 0, FLOAT_COUNTS, np.int64).sum(axis=0)
    )
    low, negated = narrow.widened(part(rows, FLOAT_COUNTS, exact, ends)).astype(np.float64).T
    nan, zero = size - numbers, from_zero + to_zero - numbers
    neg = to_zero - zero - neg_inf
    count = numbers - pos_inf - neg_inf
    if not count:
        return Statistics(size, nan, pos_inf, neg_inf, 0, 0, 0, 0)
    least, largest = float(low.min()), -float(negated.min())
    near = 0 if max(abs(least), abs(largest)) <= near_limit(ends) else None
    counts = (size, nan, pos_inf, neg_inf, zero, neg, count - zero - neg, near)
    return Statistics(*counts, least + 0.0, largest + 0.0, *mean_and_norm(rows[:, exact:], count))


def read_integers(words: NDArray[np.int16], size: int, sums: int) -> Statistics:
    rows = words.reshape(-1, INTEGER_ENDS + sums)
    exact = part(rows, 0, INTEGER_ENDS, np.int64)
    zero, neg = (int(count) for count in exact[:, :2].sum(axis=0))
    least, largest = int(exact[:, 2].min()), int(exact[:, 3].max())
    counts = (size, 0, 0, 0, zero, neg, size - zero - neg, 0)
    return Statistics(
        *counts,
        float(least),
        float(largest),
        *mean_and_norm(rows[:, INTEGER_ENDS:], size),
        least,
        largest,
    )


def mean_and_norm(rows: NDArray[np.int16], count: int) -> tuple[float | None, float | None]:
    """Those of so many elements, by rows of their sum and norm; nothing where the rows are
    empty.
    """
    if not rows.shape[1]:
        return None, None
    total, norm = part(rows, 0, None, np.float32).astype(np.float64).T
    return finite_or_none(total.sum() / count), joined(norm)


def part(rows: NDArray[np.int16], start: int, end: int | None, dtype: Any) -> Array:
    return rows[:, start:end].copy().view(dtype)


def joined(norms: Floats) -> float | None:
    return finite_or_none(math.sqrt(float((norms**2).sum())))


def finite_or_none(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None
