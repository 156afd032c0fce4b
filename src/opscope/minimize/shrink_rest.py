# SPDX-License-Identifier: Apache-2.0
"""Simpler memory, element types and arguments."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec

from opscope.minimize.candidate import Candidate, Part, freed, settled
from opscope.minimize.leaves import number_leaves, replaced
from opscope.minimize.search import Search
from opscope.run.dtypes import dtype_of
from opscope.run.schema import dense_strides

USUAL = "float32"


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
    import numpy as np

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
    from opscope.narrow import as_type

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
