# SPDX-License-Identifier: Apache-2.0
"""Columns as hashes: equal cells have equal hashes, others do not, wherever a cell stands and
whatever batch it is in.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from opscope.run.arrow import Column, column_of_view, encode_column, owned
from opscope.run.hashes import (
    LONG,
    bag_hashes,
    cells,
    distinct_texts,
    equal_to,
    hash_of,
    hashes,
    mixed,
    ragged,
)

TEXTS = st.lists(
    st.one_of(
        st.none(),
        st.text(max_size=20),
        st.sampled_from(["output", "outputs", "a" * (LONG + 1), "é" * 9]),
    )
)
SHAPES = st.lists(st.one_of(st.none(), st.lists(st.integers(0, 5), max_size=4).map(tuple)))


def columns(kind: str, *batches: list) -> list[Column]:
    arrays = [encode_column(kind, batch) for batch in batches]
    return [owned(column_of_view(kind, array.view())) for array in arrays]


def agree(cells: list, found: np.ndarray) -> bool:
    return all(
        (one == other) == (a == b)
        for one, a in zip(cells, found, strict=True)
        for other, b in zip(cells, found, strict=True)
    )


@given(TEXTS, TEXTS)
def test_equal_texts_have_equal_hashes(first: list, second: list) -> None:
    column, cells = ragged(columns("string", first, second)), first + second
    found = hashes(column, null=7)
    assert agree(cells, found)
    assert all(
        value == (7 if cell is None else hash_of(cell))
        for cell, value in zip(cells, found.tolist(), strict=True)
    )
    assert equal_to(column, "output").tolist() == [cell == "output" for cell in cells]
    assert distinct_texts(found, column) == {
        value: cell or "" for cell, value in zip(cells, found.tolist(), strict=True)
    }


@given(SHAPES, SHAPES)
def test_equal_lists_have_equal_hashes_and_bags_forget_the_order(first: list, second: list) -> None:
    column, cells = ragged(columns("list<int64>", first, second)), first + second
    found = hashes(column)
    assert agree(cells, found)
    assert agree(
        [None if cell is None else sorted(cell) for cell in cells], bag_hashes(column, found)
    )


@given(st.lists(TEXTS, min_size=1, max_size=3), st.lists(st.integers(0, 2), max_size=8))
def test_batches_of_text_that_repeat_are_looked_at_once(
    kinds: list[list], order: list[int]
) -> None:
    batches = columns("string", *(kinds[number % len(kinds)] for number in order))
    found = cells(batches)
    assert len(found.different) == sum(
        len(batch) for batch in {tuple(kinds[number % len(kinds)]) for number in order}
    )
    assert np.array_equal(
        found.each(hashes(found.different, null=7)), hashes(ragged(batches), null=7)
    )


@given(st.lists(SHAPES, min_size=1, max_size=3), st.lists(st.integers(0, 2), max_size=8))
def test_batches_of_lists_that_repeat_are_looked_at_once(
    kinds: list[list], order: list[int]
) -> None:
    batches = columns("list<int64>", *(kinds[number % len(kinds)] for number in order))
    found = cells(batches)
    assert np.array_equal(found.each(hashes(found.different)), hashes(ragged(batches)))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=40))
def test_the_hash_of_several_columns_tells_their_order(pairs: list[tuple[int, int]]) -> None:
    table = np.array(pairs, dtype=np.uint64).reshape(-1, 2)
    assert agree(pairs, mixed(table[:, 0], table[:, 1]))


def test_blocks_do_not_show() -> None:
    values = np.arange(100_000, dtype=np.uint64)
    assert np.array_equal(mixed(values, values)[40_000:], mixed(values[40_000:], values[40_000:]))
