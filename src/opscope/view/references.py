# SPDX-License-Identifier: Apache-2.0
"""How the page names a call: its process and number, and beside it what to call it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from opscope.questions.rows import matching
from opscope.run.keys import key

if TYPE_CHECKING:
    from opscope.questions.tables import Tables

Place = tuple[int, int]  # process and index
_SHOWN = ("process", "index", "name", "op", "step", "rank", "phase")
_FINEST = """SELECT level FROM calls GROUP BY level
    ORDER BY CASE level WHEN 'operator' THEN 0 WHEN 'api' THEN 1 ELSE 2 END LIMIT 1"""


def reference(process: int, index: int) -> str:
    """What stands for a call in the page and in its links: `0.4015`."""
    return f"{process}.{index}"


def place_of(text: str) -> Place | None:
    """The call that a reference stands for; None for any other text."""
    process, _, index = text.partition(".")
    numbers = (process, index)
    if not all(part.isascii() and part.isdigit() and len(part) < 13 for part in numbers):
        return None
    return int(process), int(index)


def keys_of_places(places: Iterable[Place]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Sorted numbers of these calls, each once."""
    return np.unique(np.array([key(*place) for place in places], dtype=np.int64))


def finest_level(tables: Tables) -> str:
    """The finest level that a run has calls of: operator, api or module."""
    levels = tables.rows(_FINEST)
    return str(levels[0][0]) if levels else "operator"


def names_of(tables: Tables, places: Iterable[Place]) -> dict[str, list[Any]]:
    """Name, operator, step, rank and phase by reference."""
    wanted = keys_of_places(places)
    if not wanted.size:
        return {}
    return {
        reference(process, index): list(rest)
        for process, index, *rest in matching(tables, "calls", wanted, _SHOWN)
    }
