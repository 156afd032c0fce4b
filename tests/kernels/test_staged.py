# SPDX-License-Identifier: Apache-2.0
"""What an origin on a device read is kept when its statistics arrive."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from opscope.kernels import statistics
from opscope.kernels.calls import Version
from opscope.kernels.staged import UNASKED, Staged

SOUND, UNSOUND = (statistics(np.float32([1, each])) for each in (2, np.nan))


def call(inputs: list[Version], outputs: list[Version]) -> Any:
    seen = [[SimpleNamespace(version=each) for each in side] for side in (inputs, outputs)]
    return SimpleNamespace(inputs=seen[0], outputs=seen[1])


def test_operands_of_what_became_unsound_are_kept() -> None:
    staged = Staged()
    versions = [Version(number=number, order=()) for number in range(6)]
    old, weight, x, product, after, aside = versions
    for ticket, version in enumerate(versions[:2]):
        staged.add(ticket, version)
    asked: list[tuple[int, int]] = []

    def keep(ticket: int, version: int, mask: bool) -> tuple[str, str] | None:
        assert not mask
        asked.append((ticket, version))
        return ("shard", str(version)) if ticket != UNASKED or version == 3 else None

    assert not staged.fetched([(0, SOUND)], [], keep)
    assert not staged.fetched([(1, SOUND)], [], keep)
    for ticket, version in enumerate(versions[2:], 2):
        staged.add(ticket, version)
    calls = [
        call([x, weight, old], [product]),
        call([product, x], [after]),  # arrived
        call([x], [aside]),
        call([], [product]),
    ]
    found = [(2, SOUND), (3, UNSOUND), (4, UNSOUND), (5, None)]
    assert staged.fetched(found, calls, keep)
    assert asked[:2] == [(2, 2), (1, 1)], "of the step before, too"
    assert asked[2:] == [(UNASKED, 0), (UNASKED, 3)], "what is older, and what was made"
    kept = {version.number: version.value for version in versions}
    found_at = {number: ("shard", str(number)) for number in (1, 2, 3)}
    assert kept == {**dict.fromkeys(range(6)), **found_at}
    assert staged.pending == 0
    assert not staged.fetched([], calls, keep)


@pytest.mark.parametrize(
    ("given", "made", "masks"),
    [
        (1, np.inf, [False, False]),
        (1, -np.inf, [True, True]),
        (-np.inf, -np.inf, []),
        (-np.inf, np.inf, [False, False]),
        (-np.inf, np.nan, [False, False]),
        (np.nan, np.inf, []),
    ],
)
def test_what_came_in_earlier_made_nothing(given: float, made: float, masks: list[bool]) -> None:
    """A mask that was read in the first step comes into calls of all others."""
    staged = Staged()
    mask, result = (Version(number=number, order=()) for number in range(2))
    asked: list[bool] = []

    def keep(_ticket: int, _version: int, is_mask: bool) -> None:
        asked.append(is_mask)

    statistics_of = [statistics(np.float32([each, 1])) for each in (given, made)]
    staged.add(0, mask)
    staged.fetched([(0, statistics_of[0])], [], keep)
    staged.add(1, result)
    staged.fetched([(1, statistics_of[1])], [call([mask], [result])], keep)
    assert asked == masks
