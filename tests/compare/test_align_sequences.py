# SPDX-License-Identifier: Apache-2.0
"""The common subsequence of two sequences."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from opscope.compare.pair import sequences as align_sequences
from opscope.compare.pair.sequences import common

TOKENS = st.lists(st.integers(0, 4), max_size=24)


def longest(a: list[int], b: list[int]) -> int:
    """Length of the longest common subsequence, by the textbook table."""
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = (
                table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
            )
    return table[-1][-1]


@given(TOKENS, TOKENS)
def test_is_common_increasing_and_longest(a: list[int], b: list[int]) -> None:
    pairs = sorted(common(a, b))
    assert all(a[i] == b[j] for i, j in pairs)
    assert all(i < k and j < m for (i, j), (k, m) in pairwise(pairs))
    assert len(pairs) == longest(a, b)


@given(st.lists(st.integers(0, 30), max_size=40), st.lists(st.integers(0, 30), max_size=40))
def test_splitting_long_sequences_keeps_pairs_valid(a: list[int], b: list[int]) -> None:
    before, align_sequences.MAX_CELLS = align_sequences.MAX_CELLS, 16
    try:
        pairs = sorted(common(a, b))
    finally:
        align_sequences.MAX_CELLS = before
    assert all(a[i] == b[j] for i, j in pairs)
    assert all(i < k and j < m for (i, j), (k, m) in pairwise(pairs))


def test_splitting_finds_everything_around_one_insertion() -> None:
    a = list(range(200))
    b = [*a[:77], 999, *a[77:]]
    before, align_sequences.MAX_CELLS = align_sequences.MAX_CELLS, 16
    try:
        assert len(list(common(a, b))) == 200
    finally:
        align_sequences.MAX_CELLS = before
