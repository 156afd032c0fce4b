# SPDX-License-Identifier: Apache-2.0
"""Which rank it is that holds something else than the others, or than golden."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

from opscope.compare.pair.wholes import distance

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opscope.compare.pair.sketches import Sketch
    from opscope.compare.pair.wholes import Wholes

MOST_SWAPPED = 64  # ranks of which each is tried in the place of each


def listed(ranks: Iterable[int]) -> str:
    """Ranks as a sentence has them."""
    return ", ".join(map(str, sorted(ranks)))


class OddRanks:
    """Of the rows in which ranks hold one logical tensor, those that are not as they should be."""

    def __init__(self, wholes: Wholes, limit: float) -> None:
        self._wholes, self._limit = wholes, limit

    def row(self, rows: list[int], whole: Sketch) -> int:
        """The row of the first rank that is known to hold something else, or what is not in the
        whole, or what another one should hold alone; else of the first.
        """
        slack = self._limit * whole.reach
        beyond = [
            row
            for row, held in ((row, self._wholes.of([row])) for row in rows)
            if held.least < whole.least - slack or held.most > whole.most + slack
        ]
        return (self._rows(rows, whole) or beyond or self._again(rows, whole) or rows)[0]

    def words(self, rows: list[int], whole: Sketch) -> tuple[str, ...]:
        """Which ranks hold something else than golden, where only some are known to."""
        odd = {self._wholes.rank(row) for row in self._rows(rows, whole)} if rows else set[int]()
        if not odd or odd == {*self._wholes.ranks}:
            return ()
        return (f"of {len(self._wholes.ranks)} ranks only {listed(odd)}",)

    def twice(self, rows: list[int], whole: Sketch) -> tuple[str, ...]:
        """That two ranks hold one shard, where that is why something lacks."""
        again = self._again(rows, whole)
        if not again:
            return ()
        ranks = (self._wholes.rank(self._beside(again[0], rows)[0]), self._wholes.rank(again[0]))
        return (f"ranks {' and '.join(map(str, sorted(ranks)))} hold the same shard",)

    def _rows(self, rows: list[int], whole: Sketch) -> list[int]:
        """Rows that hold something else than golden, or than other ranks hold of the same part;
        none where all do, or where nobody can tell.
        """
        copies = self._wholes.of(rows).size // max(whole.size, 1)
        sketches = {row: self._wholes.of([row]) for row in rows}
        if all(held.size == whole.size for held in sketches.values()):
            odd = [row for row, held in sketches.items() if distance(held, whole) > self._limit]
        elif copies > 1 and len(rows) <= MOST_SWAPPED:
            odd = [row for row in rows if self._mended(row, rows, whole)]
        else:
            odd = []
        return odd if len(odd) < len(rows) else []

    def _mended(self, row: int, rows: list[int], whole: Sketch) -> bool:
        """Whether all are the whole if a rank holds what another one does."""
        others = [other for other in rows if other != row]
        return any(
            distance(self._wholes.of([*others, other]), whole) <= self._limit for other in others
        )

    def _again(self, rows: list[int], whole: Sketch) -> list[int]:
        """Rows of parts that more ranks hold than there are copies of the whole, and that are
        another part on a rank before.
        """
        copies = max(self._wholes.of(rows).size // max(whole.size, 1), 1)
        state = self._wholes.flow.state
        held = Counter(int(state[row]) for row in rows)
        return [
            row
            for row in rows
            if self._wholes.of([row]).size < whole.size
            and held[int(state[row])] > copies
            and self._beside(row, rows)
        ]

    def _beside(self, row: int, rows: list[int]) -> list[int]:
        """Rows before one that hold the same, of ranks that do not hold the same elsewhere."""
        state, rank = self._wholes.flow.state, self._wholes.rank
        return [
            other
            for other in rows
            if other < row
            and state[other] == state[row]
            and (rank(other), rank(row)) not in self._copies
        ]

    @cached_property
    def _copies(self) -> frozenset[tuple[int, int]]:
        """Pairs of ranks that hold the same of most parameters that not all ranks hold alike."""
        state, rank = self._wholes.flow.state, self._wholes.rank
        parted = [
            rows
            for rows in self._wholes.begun.values()
            if len({int(state[row]) for row in rows}) > 1 and len(rows) <= MOST_SWAPPED
        ]
        alike = Counter(
            (rank(row), rank(other))
            for rows in parted
            for row, other in combinations(sorted(rows), 2)
            if state[row] == state[other]
        )
        return frozenset(pair for pair, times in alike.items() if 2 * times > len(parted))
