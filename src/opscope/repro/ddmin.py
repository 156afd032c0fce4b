# SPDX-License-Identifier: Apache-2.0
"""Delta debugging: the smallest part of a list that still fails.

Source: A. Zeller, R. Hildebrandt, Simplifying and Isolating Failure-Inducing Input, IEEE TSE 28(2),
2002, algorithm ddmin.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def ddmin(
    items: Sequence[Item],
    fails: Callable[[list[Item]], bool],
    *,
    patience: int = 16,
    finest: int | None = None,
) -> list[Item]:
    """A part of items that fails though none of its chunks can be left out; items as they are when
    no part fails.

    fails is never asked about all items nor about none. patience bounds the number of chunks that
    are tried before anything
    could be left out at all: a list that is all needed costs few trials. finest is the most chunks
    a list is cut into: one of which the most part is needed is not searched item by item.
    """
    kept, parts, progress = list(items), 2, False
    while len(kept) >= 2:
        chunks = split(kept, min(parts, len(kept)))
        failing = next((chunk for chunk in chunks if fails(chunk)), None)
        if failing is not None:
            kept, parts, progress = failing, 2, True
            continue
        if len(chunks) > 2:
            rest = next(
                (
                    without
                    for without in (drop(chunks, i) for i in range(len(chunks)))
                    if fails(without)
                ),
                None,
            )
            if rest is not None:
                kept, parts, progress = rest, max(parts - 1, 2), True
                continue
        if parts >= min(len(kept), finest or len(kept)) or (not progress and parts >= patience):
            break
        parts *= 2
    return kept


def split(items: list[Item], parts: int) -> list[list[Item]]:
    """The list in this many chunks of almost equal length."""
    bounds = [len(items) * i // parts for i in range(parts + 1)]
    return [items[start:stop] for start, stop in itertools.pairwise(bounds)]


def drop(chunks: list[list[Item]], left_out: int) -> list[Item]:
    """All chunks but one, as one list."""
    return [item for i, chunk in enumerate(chunks) if i != left_out for item in chunk]
