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
    found: list[tuple[Result, int]] = []
    for result in results:
        place = next((i for i, (other, _) in enumerate(found) if alike(result, other)), None)
        if place is None:
            found.append((result, 1))
        else:
            found[place] = (found[place][0], found[place][1] + 1)
    return found


def nature_of(wrong: int, tried: int, distinct: int) -> str:
    """What kind of fault a wrong result is, from how often it came when the call was made again."""
    if wrong == 0:
        return "transient"
    if wrong < tried:
        return "intermittent"
    return "persistent" if distinct == 1 else "unstable"
