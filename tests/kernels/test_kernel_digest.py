# SPDX-License-Identifier: Apache-2.0
"""The digest sees what changed and where, and is the same however the bytes lie."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from opscope.kernels import digest, reference

RNG = np.random.default_rng(11)


def distinct(arrays: Any) -> bool:
    found = [digest(array) for array in arrays]
    return len(set(found)) == len(found)


def by_hand(content: bytes) -> int:
    """The definition, word by word in Python integers."""
    mask, golden = 2**64 - 1, 0x9E3779B97F4A7C15

    def mix(h: int) -> int:
        h = ((h ^ h >> 33) * 0xFF51AFD7ED558CCD) & mask
        h = ((h ^ h >> 33) * 0xC4CEB9FE1A85EC53) & mask
        return h ^ h >> 33

    padded = content + bytes(-len(content) % 8)
    total = 0
    for number, start in enumerate(range(0, len(padded), 4096)):
        product = plain = 0
        for i in range(0, len(padded[start : start + 4096]), 8):
            word = int.from_bytes(padded[start + i : start + i + 8], "little")
            x = word ^ mix((i // 8 + 1) * golden & mask)
            product += (x & 0xFFFFFFFF) * (x >> 32)
            plain += x
        total += mix((product ^ mix((plain + (number + 1) * golden) & mask)) & mask)
    return mix((total + len(content) * 0xC2B2AE3D27D4EB4F) & mask)


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 63, 64, 4095, 4096, 4097, 12289])
def test_is_what_its_definition_says(length: int) -> None:
    content = RNG.bytes(length)
    array = np.frombuffer(content, np.uint8)
    assert digest(array) == reference.digest(array) == by_hand(content)


def test_never_changes() -> None:
    """Runs of different dates are compared, so these numbers stand for good."""
    assert digest(np.zeros(0, np.float32)) == 0
    assert digest(np.arange(1000, dtype=np.float32)) == 0xE876C8763C3223F0
    assert digest(np.arange(3, dtype=np.int64)) == 0xBF45F7E72BB471A


def test_zeros_of_every_length_differ() -> None:
    assert distinct(np.zeros(length, np.uint8) for length in range(9000))


@pytest.mark.parametrize(
    "fill", [np.zeros(1024, np.float32), RNG.standard_normal(1024).astype(np.float32)]
)
def test_every_single_bit_is_seen(fill: Any) -> None:
    def flipped() -> Any:
        for bit in range(8 * fill.nbytes):
            changed = fill.copy()
            changed.view(np.uint8)[bit // 8] ^= 1 << bit % 8
            yield changed

    assert distinct([fill, *flipped()])


def test_flips_spread_over_the_whole_digest() -> None:
    base = RNG.standard_normal(600).astype(np.float32)
    first, counts = digest(base), []
    for bit in range(0, 8 * base.nbytes, 7):
        changed = base.copy()
        changed.view(np.uint8)[bit // 8] ^= 1 << bit % 8
        counts.append((first ^ digest(changed)).bit_count())
    assert 31 < np.mean(counts) < 33
    assert min(counts) > 8


@pytest.mark.parametrize("name", ["float32", "float16", "int64", "uint8"])
def test_permutations_differ(name: str) -> None:
    base = RNG.permutation(2000).astype(np.int64) % 100
    assert distinct([RNG.permutation(base).astype(name) for _ in range(3000)])


@pytest.mark.parametrize("name", ["float32", "float16", "int64", "float64"])
def test_exchanging_any_two_elements_differs(name: str) -> None:
    base = np.arange(1, 90).astype(name)

    def exchanged() -> Any:
        for i, j in itertools.combinations(range(base.size), 2):
            changed = base.copy()
            changed[[i, j]] = changed[[j, i]]
            yield changed

    assert distinct([base, *exchanged()])


@pytest.mark.parametrize("name", ["float32", "float64", "float16"])
def test_sign_flips_differ(name: str) -> None:
    base = RNG.standard_normal(60).astype(name)
    ones = [np.array([index]) for index in range(60)]
    pairs = [np.array(pair) for pair in itertools.combinations(range(60), 2)]
    sets = [np.flatnonzero(RNG.random(60) < 0.5) for _ in range(2000)]

    def negated(places: Any) -> Any:
        changed = base.copy()
        changed[places] *= -1
        return changed

    unique = {tuple(places): places for places in [*ones, *pairs, *sets]}
    assert distinct(
        [base, -base, *(negated(places) for places in unique.values())][: 2 + len(unique)]
    )


def test_negating_everything_differs_at_every_length() -> None:
    base = RNG.standard_normal(5000).astype(np.float32)
    assert all(digest(base[:length]) != digest(-base[:length]) for length in range(1, 5000, 7))


@pytest.mark.parametrize("words", [1, 2, 8, 64, 512, 1024])
def test_exchanged_and_repeated_blocks_differ(words: int) -> None:
    blocks = RNG.standard_normal((8, 2 * words)).astype(np.float32)
    orders = [
        blocks[list(order)]
        for order in itertools.islice(itertools.permutations(range(8)), 0, 40320, 17)
    ]
    repeats = [np.tile(blocks[:1], (count, 1)) for count in range(1, 40)]
    doubled = [
        blocks[list(order)] for order in itertools.combinations_with_replacement(range(8), 8)
    ]
    everything = {array.tobytes(): array for array in [*orders, *repeats, *doubled]}
    assert distinct(everything.values())


def test_a_shifted_array_differs() -> None:
    base = np.zeros(3000, np.float32)

    def shifted(place: int) -> Any:
        moved = base.copy()
        moved[place] = 1
        return moved

    assert distinct([shifted(place) for place in range(3000)])


def test_layout_and_shape_do_not_matter() -> None:
    grid = RNG.standard_normal((70, 130)).astype(np.float32)
    assert digest(grid.T) == digest(np.ascontiguousarray(grid.T)) != digest(grid)
    assert digest(grid[::-1, ::2]) == digest(grid[::-1, ::2].copy())
    assert digest(grid) == digest(grid.reshape(-1)) == digest(grid.view(np.int32))
    assert digest(np.broadcast_to(grid[0], (50, 130))) == digest(np.tile(grid[0], 50))
