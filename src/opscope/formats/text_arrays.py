# SPDX-License-Identifier: Apache-2.0
"""Arrays as text, read back exactly: .txt is flat, one element a line, under "# shape=(4, 16)
dtype=float16"; .csv has a column for each index and one for the value, under a header
"i0,i1,value:float16".

Numbers are printed with as many digits as their type needs to come back the same; nan, -nan, inf
and -inf by name (the other bits of a NaN are lost); complex as (1+2j).
"""

from __future__ import annotations

import io
import itertools
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from opscope.arrays import Array
from opscope.errors import FormatError
from opscope.formats.bounded import read_bounded_text
from opscope.formats.npy import in_shape
from opscope.narrow import as_type, widened
from opscope.run.dtypes import DType, dtype_of_numpy, find_dtype

_SIZE_LIMIT = 16 << 30
_BATCH = 1 << 16
_HEAD = re.compile(r"#\s*shape=\(([0-9, ]*)\)\s+dtype=([\w]{1,40})\s*")
_COLUMNS = re.compile(r"((?:i\d+,)*)value:([\w]{1,40})\s*")
_RANK_LIMIT = 64


def write_txt(path: Path, values: Array) -> None:
    """Write an array as a flat .txt with its shape and type in the first line."""
    with path.open("w", encoding="ascii", newline="\n") as stream:
        stream.write(f"# shape={tuple(values.shape)} dtype={dtype_of_numpy(values.dtype).name}\n")
        for part in _batches(values):
            stream.write("\n".join(map(_printed, part)))
            stream.write("\n")


def write_csv(path: Path, values: Array) -> None:
    """Write an array as a .csv of indices and values."""
    with path.open("w", encoding="ascii", newline="\n") as stream:
        stream.write(
            "".join(f"i{axis}," for axis in range(values.ndim))
            + f"value:{dtype_of_numpy(values.dtype).name}\n"
        )
        places = np.ndindex(*values.shape)
        for part in _batches(values):
            rows = zip(itertools.islice(places, len(part)), part, strict=True)
            stream.write(
                "".join(
                    "".join(f"{i}," for i in index) + f"{_printed(value)}\n"
                    for index, value in rows
                )
            )


def _batches(values: Array) -> Iterator[list[Any]]:
    """Elements in C order as Python numbers, some at a time; narrow floats are widened, which is
    exact.
    """
    flat = values.reshape(-1)
    for start in range(0, flat.size, _BATCH):
        part = flat[start : start + _BATCH]
        wide = widened(part)
        if wide.dtype.kind == "V" or wide.dtype == np.float16:
            wide = wide.astype(np.float32)
        yield (
            [np.float32(value) if wide.dtype == np.float32 else value for value in wide.tolist()]
            if wide.dtype.kind == "f"
            else wide.tolist()
        )


def _printed(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, (float, np.floating)) and math.isnan(value):
        return "-nan" if math.copysign(1.0, value) < 0 else "nan"
    if isinstance(value, np.float32):
        return (
            np.format_float_positional(value, trim="-")
            if 1e-4 <= abs(value) < 1e7 or value == 0
            else str(value)
        )
    return repr(value)


def read_txt(path: Path, *, true: DType | None = None) -> Array:
    """An array out of a .txt; without our first line it is flat, of the true type or float64."""
    text = _text(path)
    head = _HEAD.match(text)
    dtype = find_dtype(head[2]) if head else true
    values = _numbers(path, text, dtype, skip=text.find("\n") + 1 if head else 0)
    sizes = [part.strip() for part in head[1].split(",") if part.strip()] if head else []
    if len(sizes) > _RANK_LIMIT or not all(size.isdecimal() and len(size) < 19 for size in sizes):
        raise FormatError(path, "the first line's shape is not numbers", offset=0)
    shape = tuple(int(size) for size in sizes) if head else values.shape
    if math.prod(shape) != values.size:
        raise FormatError(
            path, f"{values.size} elements where the first line says {shape}", offset=len(text)
        )
    return in_shape(values, shape, path)


def read_csv(path: Path, *, true: DType | None = None) -> Array:
    """An array out of a .csv that write_csv wrote; FormatError for another."""
    text = _text(path)
    first, _, rest = text.partition("\n")
    head = _COLUMNS.fullmatch(first)
    if head is None:
        raise FormatError(path, "a .csv without the header i0,i1,…,value:TYPE", offset=0)
    rank = head[1].count(",")
    if rank > _RANK_LIMIT:
        raise FormatError(path, f"a .csv of {rank} indices", offset=0)
    lines = rest.splitlines()
    values = _numbers(
        path,
        "\n".join(line.rpartition(",")[2] for line in lines),
        find_dtype(head[2]) or true,
        skip=0,
    )
    last = lines[-1].split(",")[:rank] if lines else []
    if not all(part.isdecimal() and len(part) < 19 for part in last):
        raise FormatError(path, "the last line has no indices", offset=len(text))
    shape = tuple(int(part) + 1 for part in last) if lines else (0,) * max(rank, 1)
    if math.prod(shape) != values.size:
        raise FormatError(
            path, f"{values.size} elements where the last line says {shape}", offset=len(text)
        )
    return in_shape(values, shape, path)


def _text(path: Path) -> str:
    return read_bounded_text(path, limit=_SIZE_LIMIT, what="text", encoding="ascii")


def _numbers(path: Path, text: str, dtype: DType | None, *, skip: int) -> Array:
    """Elements of whitespace-separated text; integers exactly."""
    kind = dtype.kind if dtype is not None else "float"
    words = io.StringIO(text[skip:]).read().split()
    try:
        if kind in {"int", "uint", "bool"}:
            numbers: Any = [int(word) for word in words]
        elif kind == "complex":
            numbers = [complex(word) for word in words]
        else:
            numbers = [float(word) for word in words]
        wanted = (
            dtype.to_numpy()
            if dtype is not None and dtype.numpy is not None
            else np.dtype(np.float64)
        )
        if kind == "float" and wanted.itemsize < 8:
            with np.errstate(over="ignore"):  # a number that the type cannot hold is its infinity
                return as_type(np.array(numbers, np.float64).astype(np.float32), wanted)
        return np.array(numbers, dtype=wanted)
    except (ValueError, OverflowError) as error:
        raise FormatError(
            path, f"not numbers of {dtype.name if dtype else 'float64'}: {error}", offset=skip
        ) from None
