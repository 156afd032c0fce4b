# SPDX-License-Identifier: Apache-2.0
"""How the page names a call: its process and number, and beside it what to call it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from opscope.run.keys import indices_of, keys_at, processes_of
from opscope.run.query import rows_of

if TYPE_CHECKING:
    from opscope.arrays import Bools
    from opscope.run.protocol import Run
    from opscope.view.all_calls import AllCalls

_MOST_PROCESSES = 1 << 22
Place = tuple[int, int]  # process and index
_SHOWN = ("process", "index", "name", "op", "step", "rank", "phase")


def reference(process: int, index: int) -> str:
    """What stands for a call in the page and in its links: `0.4015`."""
    return f"{process}.{index}"


def place_of(text: str) -> Place | None:
    """The call that a reference stands for; None for any other text."""
    process, _, index = text.partition(".")
    numbers = (process, index)
    if not all(part.isascii() and part.isdigit() and len(part) < 13 for part in numbers):
        return None
    return (int(process), int(index)) if int(process) <= _MOST_PROCESSES else None


def reference_of(number: int) -> str:
    """The same of a call's number (run.keys)."""
    numbers = np.array([number])
    return reference(int(processes_of(numbers)[0]), int(indices_of(numbers)[0]))


def names_of(run: Run, places: Iterable[Place]) -> dict[str, list[Any]]:
    """Name, operator, step, rank and phase by reference."""
    return {
        reference(process, index): rest
        for process, index, *rest in rows_of(run, "calls", _SHOWN, keys_at(places))
    }


def calls_near(calls: AllCalls, rank: int, step: int, index: int, most: int) -> list[Place]:
    """Calls of a step of a rank, of the finest level, the nearest to a number first."""
    here = (calls.numbers("rank") == rank) & (calls.numbers("step") == step) & calls.of_finest
    rows = np.flatnonzero(here)
    distance = np.abs(calls.numbers("index")[rows] - index)
    rows = rows[np.argsort(distance, kind="stable")][:most]
    process, numbers = calls.numbers("process")[rows], calls.numbers("index")[rows]
    return list(zip(process.tolist(), numbers.tolist(), strict=True))


def calls_named(calls: AllCalls, words: Sequence[str], most: int) -> dict[str, list[Any]]:
    """Name, operator, step, rank and phase by reference, of calls whose name, operator and step
    hold these words, in lower case and without spaces, between them; the first by step.
    """
    found = np.ones(len(calls), bool)
    steps = calls.numbers("step")
    for word in words:
        held = [step for step in np.unique(steps).tolist() if word in str(step)]
        found &= np.isin(steps, held) | _holding(calls, word)
    rows = np.flatnonzero(found)
    order = (calls.numbers("index")[rows], calls.numbers("rank")[rows], steps[rows])
    rows = rows[np.lexsort(order)][:most]
    references = [reference_of(number) for number in calls.keys[rows].tolist()]
    shown = (
        calls.texts("name").at(rows),
        calls.texts("op").at(rows),
        steps[rows].tolist(),
        calls.numbers("rank")[rows].tolist(),
        calls.texts("phase").at(rows),
    )
    return {
        named: list(rest) for named, rest in zip(references, zip(*shown, strict=True), strict=True)
    }


def _holding(calls: AllCalls, word: str) -> Bools:
    """Which calls have a word in their name or operator."""
    named, made = (
        calls.texts(name).which(lambda text: word in text.lower()) for name in ("name", "op")
    )
    return named | made
