# SPDX-License-Identifier: Apache-2.0
"""Simpler values: blocks to zero or one until only the telling elements are left, then those to
round numbers.
"""

from __future__ import annotations

import msgspec
import numpy as np

from opscope.arrays import Array
from opscope.minimize.candidate import Candidate, Part
from opscope.minimize.search import Search
from opscope.narrow import as_type, widened
from opscope.repro.ddmin import ddmin
from opscope.run.dtypes import dtype_of

BLOCKS = 64
FEW = 24


def shrink_values(search: Search[Candidate]) -> None:
    """Bring down the number of elements that are neither zero nor one, tensor by tensor."""
    for part_number in range(len(search.best.parts)):
        if _has_values(search.best.parts[part_number]) and not any(
            search.keeps(filled(search.best, part_number, value)) for value in (0, 1)
        ):
            _keep_few(search, part_number, 0)
            if telling(search.best, part_number, 0) > max(
                FEW, _size(search.best, part_number) // 2
            ):
                _keep_few(search, part_number, 1)
    round_values(search)


def round_values(search: Search[Candidate]) -> None:
    """Fewer digits, where the failure does not depend on them."""
    for part_number, part in enumerate(search.best.parts):
        if not _has_values(part) or dtype_of(part.row.dtype).kind != "float":
            continue
        for digits in (1, 2, 3):
            values = search.best.parts[part_number].values
            made = None if values is None else rounded(values, digits)
            if (
                made is None
                or _same(made, values)
                or search.keeps(with_values(search.best, part_number, made))
            ):
                break


def all_of(values: Array, value: int) -> Array:
    """As many elements of the same type, all of them this number."""
    return as_type(np.full(values.shape, value, np.float32), values.dtype)


def filled(candidate: Candidate, part_number: int, value: int) -> Candidate | None:
    """All elements of one tensor the same; None when they are already."""
    values = candidate.parts[part_number].values
    made = None if values is None else all_of(values, value)
    return (
        None if made is None or _same(made, values) else with_values(candidate, part_number, made)
    )


def with_values(candidate: Candidate, part_number: int, values: Array) -> Candidate:
    """Other elements for one tensor, and for those that look at the same memory in the same way."""
    row = candidate.parts[part_number].row
    for number, other in enumerate(candidate.parts):
        same = (other.row.buffer, other.row.shape, other.row.stride, other.row.offset) == (
            row.buffer,
            row.shape,
            row.stride,
            row.offset,
        )
        if number == part_number or (candidate.bound and same and other.row.dtype == row.dtype):
            candidate = candidate.with_part(
                number,
                values=values,
                row=msgspec.structs.replace(other.row, values="exact", stats={}),
            )
    return candidate


def telling(candidate: Candidate, part_number: int, neutral: int) -> int:
    """How many elements of a tensor are not neutral."""
    values = candidate.parts[part_number].values
    return 0 if values is None else int((widened(values) != neutral).sum())


def _keep_few(search: Search[Candidate], part_number: int, neutral: int) -> None:
    """ddmin over the elements that are not neutral: over blocks of them while they are many, then
    over single ones.
    """
    while True:
        base = search.best
        values = base.parts[part_number].values
        assert values is not None  # noqa: S101 - for the type checker
        flat = values.reshape(-1)
        places = np.flatnonzero(widened(flat) != neutral)
        if places.size < 2:
            return
        blocks = (
            np.array_split(places, BLOCKS)
            if places.size > BLOCKS
            else [places[i : i + 1] for i in range(places.size)]
        )

        def fails(chosen: list[Array], base: Candidate = base, flat: Array = flat) -> bool:
            made = all_of(flat, neutral)
            kept = np.concatenate(chosen)
            made[kept] = flat[kept]
            return search.keeps(
                with_values(base, part_number, made.reshape(base.parts[part_number].row.kept))
            )

        kept = ddmin(blocks, fails)
        if len(kept) == len(blocks) or places.size <= BLOCKS:
            return


def rounded(values: Array, digits: int) -> Array:
    """The values with this many significant decimal digits, those that are not finite as they
    are.
    """
    wide = widened(values).astype(np.float64)
    size = np.abs(wide)
    known = np.isfinite(wide) & (size > 0)
    unit = np.power(10.0, np.floor(np.log10(np.where(known, size, 1.0))) - digits + 1)
    made = np.where(known, np.round(np.where(known, wide, 0.0) / unit) * unit, wide)
    return as_type(made, values.dtype)


def _has_values(part: Part) -> bool:
    return part.values is not None and part.values.size > 0


def _size(candidate: Candidate, part_number: int) -> int:
    values = candidate.parts[part_number].values
    return 0 if values is None else int(values.size)


def _same(one: Array, other: Array | None) -> bool:
    return other is not None and one.tobytes() == other.tobytes()
