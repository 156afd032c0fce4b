# SPDX-License-Identifier: Apache-2.0
"""Samples of elements: of no order, changed by nothing beside them, and next to nothing by rounding."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from opscope.arrays import Floats
from opscope.compare.pair.samples import MANTISSAS, Sampled, parts_of, sample

SEEDS = st.integers(0, 2**32 - 1)
SIZES = st.integers(40, 5000)


def drawn(seed: int, size: int) -> Floats:
    numbers: Floats = np.random.default_rng(seed).normal(size=size).astype(np.float32)
    return numbers


def sampled(*tensors: Floats) -> Sampled:
    return Sampled(
        np.stack([sample(each) for each in tensors]),
        np.array([each.size for each in tensors]),
        np.zeros(len(tensors), dtype=np.uint64),
    )


@given(SEEDS, SIZES)
def test_neither_order_nor_what_is_no_number_changes_a_sample(seed: int, size: int) -> None:
    numbers = drawn(seed, size)
    shuffled = np.random.default_rng(seed + 1).permutation(numbers)
    filled = np.concatenate([shuffled, np.float32([0, np.nan, np.inf, -np.inf, -1e9, 0])])
    assert (sample(filled.reshape(2, -1) if size % 2 == 0 else filled) == sample(numbers)).all()
    assert np.isin(sample(numbers), numbers).all()


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


def test_few_numbers_tell_nothing() -> None:
    counts = np.float32([1.5, 2.5] * 20)
    assert not len(parts_of(sampled(counts[:30]), sampled(counts))[0])


def test_without_numbers_there_is_no_sample() -> None:
    assert np.isnan(sample(np.zeros(9, dtype=np.float32))).all()
    assert sample(np.zeros(0, dtype=np.float32)).shape == MANTISSAS.shape
    empty = sampled(np.zeros(9, dtype=np.float32))
    assert not len(parts_of(empty, empty)[0])
