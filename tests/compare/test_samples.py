# SPDX-License-Identifier: Apache-2.0
"""Tensors by samples of their elements: parts of wholes, and rows that agree beside others."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from opscope.arrays import Floats
from opscope.compare.pair.samples import Sampled, alike_in_part, parts_of
from opscope.kernels.reference import sample

SEEDS = st.integers(0, 2**32 - 1)
SIZES = st.integers(40, 5000)


def drawn(seed: int, size: int) -> Floats:
    numbers: Floats = np.random.default_rng(seed).normal(size=size).astype(np.float32)
    return numbers


def sampled(*tensors: Floats) -> Sampled:
    counts = [np.count_nonzero(each) for each in tensors]
    return Sampled.of(
        np.array([sample(each) or [np.nan] * 8 for each in tensors]),
        (np.array([each.size for each in tensors]), np.array(counts)),
        np.zeros(len(tensors), dtype=np.uint64),
    )


@given(SEEDS, SIZES)
def test_a_part_is_found_in_its_whole_and_in_nothing_else(seed: int, size: int) -> None:
    whole, other = drawn(seed, size), drawn(seed + 1, size)
    mine = sampled(whole[: size * 15 // 16])
    assert [each.tolist() for each in parts_of(mine, sampled(other, whole))] == [[0], [1]]
    assert [each.tolist() for each in parts_of(mine, sampled(other))] == [[], []]


@given(SEEDS, SIZES)
def test_rounding_leaves_a_part_what_it_is(seed: int, size: int) -> None:
    whole = drawn(seed, size)
    rounded = whole[size // 16 :] * np.float32(1 + 2**-23)
    part, found = parts_of(sampled(rounded), sampled(whole))
    assert (part.tolist(), found.tolist()) == ([0], [0])


def test_a_whole_is_no_part_and_one_of_another_step_neither() -> None:
    numbers = drawn(0, 100)
    whole, part = sampled(numbers), sampled(numbers[:90])
    assert not len(parts_of(whole, whole)[0])
    assert not len(parts_of(whole, part)[0])
    later = part._replace(places=part.places + np.uint64(1))
    assert not len(parts_of(later, whole)[0])


@given(SEEDS, SIZES)
def test_rows_that_are_the_same_are_found_beside_others(seed: int, size: int) -> None:
    one, other, rest = drawn(seed, size), drawn(seed + 1, size), drawn(seed + 2, size)
    mine = np.concatenate([one[: size * 9 // 10], rest[size * 9 // 10 :]])
    found = alike_in_part(sampled(mine, other), sampled(one, rest))
    assert (0, 0) in zip(*(each.tolist() for each in found), strict=True)
    assert 1 not in found[0]  # of two that have nothing in common
    assert not len(alike_in_part(sampled(mine), sampled(one[:-1]))[0])
    left = Fraction(size, size - 1)  # as much as the other's data is cut to
    assert len(alike_in_part(sampled(mine), sampled(one[:-1]), {left})[0]) == 1


def test_few_numbers_tell_nothing() -> None:
    counts = np.float32([1.5, 2.5] * 20)
    assert not len(parts_of(sampled(counts[:30]), sampled(counts))[0])
    roots = np.sqrt(np.arange(1, 9, dtype=np.float32))  # of degrees, in both of two graphs
    mine, theirs = sampled(np.repeat(roots, 40)), sampled(np.repeat(roots, [20, 60] * 4))
    assert not len(alike_in_part(mine, theirs)[0])


def test_without_numbers_there_is_no_sample() -> None:
    empty = sampled(np.zeros(9, dtype=np.float32))
    assert not len(parts_of(empty, empty)[0])
    assert not len(alike_in_part(empty, empty)[0])
