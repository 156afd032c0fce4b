# SPDX-License-Identifier: Apache-2.0
"""A call made several times: which of its results differ, and what kind of fault a wrong one is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Result = TypeVar("Result")


def told_apart(
    results: Iterable[Result], alike: Callable[[Result, Result], bool]
) -> list[tuple[Result, int]]:
    """Results that are not alike, and how often each came; in the order in which they came."""
    counted: list[tuple[Result, int]] = []
    for result in results:
        number = next((i for i, (other, _) in enumerate(counted) if alike(result, other)), None)
        if number is None:
            counted.append((result, 1))
        else:
            counted[number] = (counted[number][0], counted[number][1] + 1)
    return counted


def nature_of(wrong: int, tried: int, distinct: int) -> str:
    """What kind of fault a wrong result is, from how often it came when the call was made again."""
    if wrong == 0:
        return "transient"
    if wrong < tried:
        return "intermittent"
    return "persistent" if distinct == 1 else "unstable"
