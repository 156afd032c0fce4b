# SPDX-License-Identifier: Apache-2.0
"""Simpler values, memory, element types and arguments, at the shapes that are left.

Blocks of values become zero or one until only the telling elements are left, then those become
round numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from opscope.arrays import Array
from opscope.minimize.candidate import Candidate, Part, freed, settled
from opscope.minimize.leaves import number_leaves, replaced
from opscope.minimize.search import Search
from opscope.narrow import as_type, widened
from opscope.repro.ddmin import ddmin
from opscope.run.dtypes import dtype_of
from opscope.run.schema import dense_strides

BLOCKS = 64
FEW = 24
USUAL = "float32"


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
            places = np.concatenate(chosen)
            made[places] = flat[places]
            return search.keeps(
                with_values(base, part_number, made.reshape(base.parts[part_number].row.kept))
            )

        needed = ddmin(blocks, fails)
        if len(needed) == len(blocks) or places.size <= BLOCKS:
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


def free_memory(search: Search[Candidate]) -> None:
    """Each tensor its own memory, unless the failure needs what they share."""
    if search.best.bound:
        search.keeps(freed(search.best))


def plain_strides(search: Search[Candidate]) -> None:
    """Tensors laid out in C order, all of them or one after the other."""
    if search.best.bound:
        return
    odd = [
        number
        for number, part in enumerate(search.best.parts)
        if part.row.stride != dense_strides(part.row.shape)
    ]
    if odd and not search.keeps(_dense(search.best, odd)):
        for number in odd:
            search.keeps(_dense(search.best, [number]))


def _dense(candidate: Candidate, places: list[int]) -> Candidate:
    for number in places:
        part = candidate.parts[number]
        values = (
            None
            if part.values is None
            else np.ascontiguousarray(np.broadcast_to(part.values, part.row.shape))
        )
        candidate = candidate.with_part(
            number,
            row=msgspec.structs.replace(part.row, stride=dense_strides(part.row.shape)),
            values=values,
        )
    return settled(candidate)


def usual_type(search: Search[Candidate]) -> None:
    """float32 for all floating tensors, when the failure is not one of their own type."""
    floats = {
        part.row.dtype for part in search.best.parts if dtype_of(part.row.dtype).kind == "float"
    }
    if floats - {USUAL}:
        search.keeps(settled(_cast(search.best)))


def _cast(candidate: Candidate) -> Candidate:
    parts = tuple(
        _cast_part(part) if dtype_of(part.row.dtype).kind == "float" else part
        for part in candidate.parts
    )
    args = _cast_args(candidate.case.args)
    return msgspec.structs.replace(candidate, parts=parts).with_args(args)


def _cast_part(part: Part) -> Part:
    values = None if part.values is None else as_type(part.values, dtype_of(USUAL).to_numpy())
    return Part(msgspec.structs.replace(part.row, dtype=USUAL, stats={}), values)


def _cast_args(node: Any) -> Any:
    if isinstance(node, list):
        return [_cast_args(item) for item in node]
    if not isinstance(node, dict):
        return node
    if list(node) == ["dtype"]:
        return {"dtype": USUAL} if dtype_of(node["dtype"]).kind == "float" else node
    return {key: _cast_args(item) for key, item in node.items()}


def plain_arguments(search: Search[Candidate]) -> None:
    """Keyword arguments left out, numbers brought to zero, one or two where the failure does not
    need them.
    """
    for key in list(search.best.case.args["kwargs"]):
        args = search.best.case.args
        if "tensor" not in str(args["kwargs"][key]):
            search.keeps(
                search.best.with_args(
                    {
                        **args,
                        "kwargs": {
                            name: node for name, node in args["kwargs"].items() if name != key
                        },
                    }
                )
            )
    for path, _ in list(number_leaves(search.best.case.args)):
        value = dict(number_leaves(search.best.case.args)).get(path)
        for simpler in simpler_numbers(value):
            if search.keeps(
                search.best.with_args(replaced(search.best.case.args, {path: simpler}))
            ):
                break


def simpler_numbers(value: Any) -> Iterator[Any]:
    """Numbers to try in place of one, the simplest first."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int):
        yield from (number for number in (0, 1, 2) if value > 2 and number < value)
    elif math.isfinite(value):
        yield from (
            number for number in (0.0, 1.0, 0.5) if value not in {0.0, 1.0, 0.5} and number != value
        )
