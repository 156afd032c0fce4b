# SPDX-License-Identifier: Apache-2.0
"""A tensor in one line: `f16[32, 128, 64] x∈[-310, 298] 37 inf`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from opscope.kernels.calls import STATISTICS
from opscope.run.dtypes import short_dtype
from opscope.run.printable import number
from opscope.run.schema import Tensor


def value_range(dtype: str, stats: Mapping[str, Any]) -> str:
    """`x∈[-310, 298]` over the finite elements, `|x|∈[…]` for complex types; empty when there are
    none.
    """
    if stats.get("min_int") is not None and stats.get("max_int") is not None:
        return f"x∈[{stats['min_int']}, {stats['max_int']}]"
    if stats.get("min") is None or stats.get("max") is None:
        return ""
    letter = "|x|" if dtype.startswith("complex") else "x"
    return f"{letter}∈[{number(stats['min'])}, {number(stats['max'])}]"


def troubles(stats: Mapping[str, Any]) -> str:
    """`37 inf, 2 nan`: the counts of what is not finite; empty when everything is."""
    named = (("pos_inf", "inf"), ("neg_inf", "-inf"), ("nan", "nan"))
    return ", ".join(f"{stats[column]} {word}" for column, word in named if stats.get(column))


def one_line(
    dtype: str, shape: Sequence[int] | None, stats: Mapping[str, Any], *, full: bool = False
) -> str:
    """Type, shape, and what stands out: the counts of what is not finite, else the range; with
    full, both.
    """
    sizes = "…" if shape is None else ", ".join(map(str, shape))
    trouble, extent = troubles(stats), value_range(dtype, stats)
    said = [extent, trouble] if full else [trouble or extent]
    if not any(said) and stats.get("size") == 0:
        said = ["empty"]
    return " ".join([f"{short_dtype(dtype)}[{sizes}]", *filter(None, said)])


def row_statistics(tensor: Tensor) -> dict[str, Any]:
    """The statistics of a row that are not null, by column."""
    row = msgspec.structs.asdict(tensor)
    return {column: row[column] for column in STATISTICS if row[column] is not None}
