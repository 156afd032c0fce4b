# SPDX-License-Identifier: Apache-2.0
"""Smaller shapes: cuts axes that belong together, and the sizes among the arguments that follow
them.

Which axes belong together is not known of an operator in general, but axes of one size often do
(rows of two matrices, the inner dimension of a product). Groups of axes of one size are tried, from
all of them down to single ones; the operator itself refuses what does not fit. What is left large
is tried with axes of two sizes, one a multiple of the other and a rest: the windows of a pooling or
a convolution. Along a group ddmin looks for the indices that are needed. Where any index is (a
kernel that is wrong in one tile), the shortest beginning that still fails is kept, so that
positions and tile edges stay.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from opscope.minimize.candidate import Candidate, Part, size_of
from opscope.minimize.leaves import integer_leaves, replaced
from opscope.minimize.search import Search
from opscope.minimize.simplify import with_values
from opscope.repro.ddmin import ddmin

Axis = tuple[int, int]  # place of a part, axis
GROUPS = 24
SMALL = 100  # elements; a case that has no more needs no axes of two sizes
# chunks of an axis; when more than half of as many are needed, its length is what matters
FINEST = 32


class _Refused(Exception):  # noqa: N818 - how a probe of a group ends
    """These axes cannot be cut without others."""


def shrink_shapes(search: Search[Candidate]) -> bool:
    """Cut every axis that can be cut; whether anything was."""
    before = search.best
    done: set[object] = set()
    while True:
        size = next(
            (size for size in _sizes(search.best) if (size, _axes(search.best, size)) not in done),
            None,
        )
        if size is None:
            break
        done.add((size, _axes(search.best, size)))
        for group in itertools.islice(groups(_axes(search.best, size)), GROUPS):
            if all(search.best.parts[part].row.shape[axis] == size for part, axis in group):
                _shrink_group(search, group, size)
    for size, larger in itertools.combinations(reversed(_sizes(search.best)), 2):
        if size_of(search.best).elements <= SMALL:
            break
        _shrink_windows(search, size, larger)
    return search.best is not before


def _sizes(candidate: Candidate) -> list[int]:
    """Lengths of axes, the largest first."""
    return sorted(
        {length for part in candidate.parts for length in part.row.shape if length > 1},
        reverse=True,
    )


def _axes(candidate: Candidate, size: int) -> tuple[Axis, ...]:
    return tuple(
        (part_number, axis)
        for part_number, part in enumerate(candidate.parts)
        for axis, length in enumerate(part.row.shape)
        if length == size
    )


def groups(axes: Sequence[Axis]) -> Iterator[tuple[Axis, ...]]:
    """Axes of one size that may belong together: all; those at one place of their shapes; pairs;
    single ones.
    """
    seen: set[tuple[Axis, ...]] = set()
    alike = [
        tuple(axis for axis in axes if axis[1] == number)
        for number in sorted({axis for _, axis in axes})
    ]
    pairs = itertools.combinations(axes, 2) if len(axes) <= 6 else ()
    for group in (tuple(axes), *alike, *pairs, *((axis,) for axis in axes)):
        if group and group not in seen:
            seen.add(group)
            yield group


def _probe(
    search: Search[Candidate], candidates: Callable[[list[int]], Iterator[Candidate]]
) -> Callable[[list[int]], bool]:
    """Whether a case that keeps some indices still fails, for ddmin: tries its candidates until it
    is known which of them does.

    Raises _Refused when the operator takes none.
    """
    choice: list[int] = []
    refused = 0

    def fails(indices: list[int]) -> bool:
        nonlocal refused
        for number, candidate in enumerate(candidates(indices)):
            if choice and number != choice[0]:
                continue
            if search.keeps(candidate):
                choice[:] = [number]
                return True
        refused += search.last is not None and search.last.status == "cannot"
        if not choice and refused == 2:
            raise _Refused
        return False

    return fails


def _shrink_group(search: Search[Candidate], group: Sequence[Axis], size: int) -> None:
    fails = _probe(search, functools.partial(_cuts, search.best, group, size))
    with contextlib.suppress(_Refused):
        needed = ddmin(range(size), fails, patience=8, finest=FINEST)
        if len(needed) == size or len(needed) > FINEST:
            _shortest_beginning(needed, fails)


def _shrink_windows(search: Search[Candidate], size: int, larger: int) -> None:
    """Cut axes of one size together with those of a larger one at the same place of their shapes,
    by as many windows.
    """
    for number in range(max((len(part.row.shape) for part in search.best.parts), default=0)):
        few, many = (
            tuple(axis for axis in _axes(search.best, each) if axis[1] == number)
            for each in (size, larger)
        )
        if few and many:
            fails = _probe(
                search, functools.partial(_window_cuts, search.best, few, many, (size, larger))
            )
            with contextlib.suppress(_Refused):
                ddmin(range(size), fails, patience=8, finest=FINEST)


def _window_cuts(
    base: Candidate,
    few: Sequence[Axis],
    many: Sequence[Axis],
    sizes: tuple[int, int],
    indices: list[int],
) -> Iterator[Candidate]:
    """The candidates that keep these windows: one whose arguments follow both lengths, one whose
    arguments stay.
    """
    windows = inside(indices, *sizes)
    smaller = cut(base, few, indices)
    smaller = cut(smaller, many, windows) if smaller is not None else None
    if smaller is None:
        return
    args = next(follow(base.case.args, sizes[0], len(indices), 1))
    args = next(follow(args, sizes[1], len(windows), 1))
    yield smaller.with_args(args)
    if args != base.case.args:
        yield smaller


def inside(indices: Sequence[int], size: int, larger: int) -> list[int]:
    """Indices of an axis that windows with these numbers cover: equal parts of it, and the rest at
    its end, which is kept.
    """
    width = larger // size
    return [width * index + offset for index in indices for offset in range(width)] + list(
        range(width * size, larger)
    )


def _shortest_beginning(indices: list[int], fails: Any) -> None:
    """Halve the interval in which the shortest beginning that still fails must end: half of it is
    known to be too short.
    """
    low, high = len(indices) // 2, len(indices)
    while high - low > 1:
        middle = (low + high) // 2
        if fails(indices[:middle]):
            high = middle
        else:
            low = middle


def _cuts(
    base: Candidate, group: Sequence[Axis], size: int, indices: list[int]
) -> Iterator[Candidate]:
    """The candidates in which these axes keep these indices: one for each way in which arguments,
    and then indices too, may follow.
    """
    smaller = cut(base, group, indices)
    if smaller is None:
        return
    power = max(sum(1 for part, _ in group if part == part_number) for part_number, _ in group)
    seen: list[dict[str, Any]] = []
    for args in follow(base.case.args, size, len(indices), power):
        if args not in seen:
            seen.append(args)
    yield from (smaller.with_args(args) for args in seen)
    other = renamed(smaller, indices, size)
    if other is not smaller:
        yield from (other.with_args(args) for args in seen)


def renamed(candidate: Candidate, indices: list[int], size: int) -> Candidate:
    """Tensors of whole numbers that may be indices of a cut axis name what was kept by its new
    place; 0 stands for what was not.

    So a row that one index needs is kept without those before it, and indices stay valid.
    """
    places = np.zeros(size, np.int64)
    places[indices] = np.arange(len(indices))
    for number, part in enumerate(candidate.parts):
        values = part.values
        if (
            values is None
            or not values.size
            or values.dtype.kind not in "iu"
            or values.min() < 0
            or values.max() >= size
        ):
            continue
        made = places[values.astype(np.int64)].astype(values.dtype)
        if not np.array_equal(made, values):
            candidate = with_values(candidate, number, made)
    return candidate


def follow(args: dict[str, Any], size: int, length: int, power: int) -> Iterator[dict[str, Any]]:
    """Argument trees after a cut from size to kept: equal sizes follow, products follow, nothing
    follows, one alone does.
    """
    leaves = [(path, value) for path, value in integer_leaves(args) if value > 1]
    equal = {path: length for path, value in leaves if value == size}
    products = {path: _scaled(value, size, length, power) for path, value in leaves}
    yield replaced(args, {**products, **equal})
    yield replaced(args, equal)
    yield args
    changed = {
        path: value for path, value in {**products, **equal}.items() if value != dict(leaves)[path]
    }
    if 1 < len(changed) <= 4:
        for count in range(len(changed) - 1, 0, -1):
            for chosen in itertools.combinations(changed, count):
                yield replaced(args, {path: changed[path] for path in chosen})


def _scaled(value: int, size: int, length: int, power: int) -> int:
    for exponent in range(power, 0, -1):
        if value % size**exponent == 0:
            scaled: int = value // size**exponent * length**exponent
            return scaled
    return value


def cut(base: Candidate, group: Sequence[Axis], indices: list[int]) -> Candidate | None:
    """The candidate whose axes keep these indices; None where tensors that keep their memory cannot
    skip some.
    """
    parts = list(base.parts)
    for part_number, axis in group:
        part = (
            _cut_bound(parts[part_number], axis, indices)
            if base.bound
            else _cut_free(parts[part_number], axis, indices)
        )
        if part is None:
            return None
        parts[part_number] = part
    return msgspec.structs.replace(base, parts=tuple(parts))


def _cut_free(part: Part, axis: int, indices: list[int]) -> Part:
    row = part.row
    shape = (*row.shape[:axis], len(indices), *row.shape[axis + 1 :])
    values = part.values
    if values is not None and row.kept[axis] != 1:
        values = np.take(values, indices, axis=axis)
    kept = (
        row.kept if row.kept[axis] == 1 else (*row.kept[:axis], len(indices), *row.kept[axis + 1 :])
    )
    return Part(msgspec.structs.replace(row, shape=shape, kept=kept), values)


def _cut_bound(part: Part, axis: int, indices: list[int]) -> Part | None:
    steps = set(np.diff(indices).tolist()) or {1}
    if len(steps) != 1:
        return None
    free = _cut_free(part, axis, indices)
    stride = (
        *part.row.stride[:axis],
        part.row.stride[axis] * steps.pop(),
        *part.row.stride[axis + 1 :],
    )
    offset = part.row.offset + indices[0] * part.row.stride[axis]
    return Part(msgspec.structs.replace(free.row, stride=stride, offset=offset), free.values)
