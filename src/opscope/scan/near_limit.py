# SPDX-License-Identifier: Apache-2.0
"""Early warning: values of narrow types that come near the limit, before anything overflowed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from opscope.judge.limits import NARROW, largest_finite
from opscope.operators.catalogue import traits_of
from opscope.run.keys import keys_at
from opscope.run.query import filled, rows_of, rows_where
from opscope.run.vectors import calls_where, codes_of

if TYPE_CHECKING:
    from opscope.arrays import Array, Bools
    from opscope.run.protocol import Run

MAX_WARNINGS = 10
_Site = tuple[int, str, str]  # rank and name of calls, and the slot of a result of theirs
_NUMBER = re.compile(r"\d+(\.\d+)?(e[+-]?\d+)?")


def near_limit_warnings(run: Run) -> list[str]:
    """One line for each call whose outputs come near the limit of float16 or fp8, those that grow
    first.
    """
    series: dict[tuple[int, str, str], list[tuple[int, float]]] = {}
    for rank, name, step, dtype, largest in _sizes(run, _near(run)):
        series.setdefault((rank, name, dtype), []).append((step, largest))
    lines = [
        (growing, line) for site, values in series.items() for growing, line in _line(site, values)
    ]
    lines.sort(key=lambda item: not item[0])
    return once_each([line for _, line in lines])[:MAX_WARNINGS]


def _near(run: Run) -> dict[_Site, list[str]]:
    """The narrow types whose limit results come near."""

    def near(batch: Mapping[str, Array]) -> Bools:
        return np.asarray(filled(batch["near_limit"]) > 0)

    columns: tuple[str, ...] = ("process", "index", "io", "dtype", "slot", "near_limit")
    results: dict[tuple[int, int], set[tuple[str, str]]] = {}
    for process, index, io, dtype, slot, _ in rows_where(run, "tensors", columns, near):
        if io == "output" and dtype in NARROW:
            results.setdefault((process, index), set()).add((dtype, slot))
    columns = ("process", "index", "level", "rank", "name")
    sites = {
        (rank, name, slot, dtype)
        for process, index, level, rank, name in rows_of(run, "calls", columns, keys_at(results))
        if level == "operator"
        for dtype, slot in results[process, index]
    }
    types: dict[_Site, list[str]] = {}
    for rank, name, slot, dtype in sorted(sites):
        types.setdefault((rank, name, slot), []).append(dtype)
    return types


def _sizes(
    run: Run, types: Mapping[_Site, Sequence[str]]
) -> list[tuple[int, str, int, str, float]]:
    """Rank, name and step of every call that has such a result, with the type and the largest
    magnitude of it there, in the order of steps.
    """
    names = codes_of({name for _, name, _ in types})
    named = calls_where(run, "calls", lambda batch: np.isin(batch.hashes("name"), names))
    columns: tuple[str, ...] = ("process", "index", "rank", "name", "step", "op")
    calls = {
        (process, index): (rank, name, step)
        for process, index, rank, name, step, op in rows_of(run, "calls", columns, named)
        if not traits_of(op).view  # says again what the call said whose result it looks at
    }
    sizes: list[tuple[int, str, int, str, float]] = []
    columns = ("process", "index", "slot", "min", "max", "io")
    for process, index, slot, low, high, _ in rows_where(
        run, "tensors", columns, _is_known_result, keys_at(calls)
    ):
        rank, name, step = calls[process, index]
        largest = max(abs(high if low is None else low), abs(high))
        sizes += [(rank, name, step, dtype, largest) for dtype in types.get((rank, name, slot), ())]
    return sorted(sizes, key=itemgetter(0, 1, 2))


def _is_known_result(batch: Mapping[str, Array]) -> Bools:
    return np.asarray((batch["io"] == "output") & ~np.ma.getmaskarray(batch["max"]))


def once_each(warnings: Sequence[str]) -> list[str]:
    """Warnings that differ in their numbers alone (the same call of every layer) told once, with
    how many more there are.
    """
    kinds: dict[str, list[str]] = {}
    for warning in warnings:
        kinds.setdefault(_NUMBER.sub("#", warning), []).append(warning)
    return [
        same[0] if len(same) == 1 else f"{same[0]} (and {len(same) - 1} more like it)"
        for same in kinds.values()
    ]


def _line(site: tuple[int, str, str], values: list[tuple[int, float]]) -> list[tuple[bool, Any]]:
    rank, name, dtype = site
    limit = largest_finite(dtype)
    step, largest = max(values, key=lambda item: item[1])
    if limit is None or largest >= limit or largest < 0.9 * limit:
        return []
    sizes = [size for _, size in values]
    growing = (
        len(sizes) >= 3
        and sizes[-1] > 1.5 * sizes[0]
        and all(later >= 0.9 * earlier for earlier, later in pairwise(sizes))
    )
    trend = f", growing from {sizes[0]:.3g} in step {values[0][0]}" if growing else ""
    return [
        (
            growing,
            (
                f"rank {rank}: {name} reaches {largest:.4g} in step {step}, near the limit of "
                f"{dtype} ({limit:g}){trend}"
            ),
        )
    ]
