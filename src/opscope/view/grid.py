# SPDX-License-Identifier: Apache-2.0
"""All calls of a run as a picture: a row for each step of each rank, a column for each call of it,
a byte for what one wants to see.

What each call gave is a byte; what does not fit is aggregated to the worst, so that nothing wrong
is lost. No row of a run gets into the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.view.all_calls import ORIGIN, AllCalls
from opscope.view.colour import colours

if TYPE_CHECKING:
    from opscope.arrays import Bytes, Floats, Ints
    from opscope.run.finding import Finding

MOST_CELLS = 2_000_000


class Row(msgspec.Struct, frozen=True):
    """A step of a process; sequence: which list of calls it made, begin: the number of its first
    call.
    """

    rank: int
    process: int
    step: int
    begin: int
    calls: int
    sequence: int


class Grid(msgspec.Struct, frozen=True):
    """Planes of bytes by name, rows by columns; a column is fold calls wide.

    sequences: for each, process, step and numbers of the calls relative to the first. scale: least
    and largest of a plane "own" whose bytes 1 to 255 lie between them.
    """

    rows: tuple[Row, ...]
    columns: int
    fold: int
    planes: dict[str, Bytes]
    sequences: tuple[Ints, ...]
    scale: tuple[float, float] | None = None

    def place(self, row: Row, index: int) -> int | None:
        """Which call of its row a number is, from 0; None where it is none of them."""
        matches = np.flatnonzero(self.sequences[row.sequence] == index - row.begin)
        return int(matches[0]) if matches.size else None


def grid_of(
    calls: AllCalls,
    findings: Sequence[Finding] = (),
    *,
    expression: str | None = None,
    most_cells: int = MOST_CELLS,
) -> Grid:
    """The picture of the calls of a run; findings are marked in it.

    expression is SQL over the columns of calls and tensors, the largest over a call's outputs is
    its value. Raises UsageError where it is none.
    """
    chosen = np.flatnonzero(calls.of_finest)
    planes = {
        "health": calls.results.health[chosen],
        "magnitude": calls.results.magnitude[chosen],
        "zeros": calls.results.zeros[chosen],
    }
    scale = None
    if expression is not None:
        planes["own"], scale = _bytes(colours(calls, expression)[chosen])
    starts = _starts(calls, chosen)
    sizes = np.diff(starts, append=len(chosen))
    rows, sequences = _rows(calls, chosen, starts, sizes)
    longest = int(sizes.max()) if len(sizes) else 0
    fold = 1
    while len(rows) * -(-longest // fold) > most_cells:
        fold *= 2
    columns = -(-longest // fold)
    column = (np.arange(len(chosen)) - np.repeat(starts, sizes)) // fold
    cells = np.repeat(np.arange(len(rows)), sizes) * columns + column
    folded = {name: _folded(plane, cells, (len(rows), columns)) for name, plane in planes.items()}
    grid = Grid(rows, columns, fold, folded, sequences, scale)
    _mark(grid, findings)
    return grid


def _folded(values: Bytes, cells: Ints, shape: tuple[int, int]) -> Bytes:
    """The largest of the values of each cell."""
    plane = np.zeros(shape, dtype=np.uint8)
    np.maximum.at(plane.reshape(-1), cells, values)
    return plane


def _starts(calls: AllCalls, chosen: Ints) -> Ints:
    """Where among the chosen calls each row of the picture begins."""
    begins = np.zeros(len(chosen), dtype=bool)
    begins[:1] = True
    for name in ("rank", "process", "step"):
        column = calls.numbers(name)[chosen]
        begins[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(begins)


def _rows(
    calls: AllCalls, chosen: Ints, starts: Ints, sizes: Ints
) -> tuple[tuple[Row, ...], tuple[Ints, ...]]:
    indices, names = calls.numbers("index")[chosen], calls.texts("name").numbers[chosen]
    places = zip(
        *(calls.numbers(name)[chosen[starts]].tolist() for name in ("rank", "process", "step")),
        strict=True,
    )
    known: dict[bytes, int] = {}
    sequences: list[Ints] = []
    rows = []
    for (rank, process, step), start, size in zip(
        places, starts.tolist(), sizes.tolist(), strict=True
    ):
        relative = indices[start : start + size] - indices[start]
        same = relative.tobytes() + names[start : start + size].tobytes()
        if same not in known:
            known[same] = len(sequences)
            sequences.append(relative)
        rows.append(Row(rank, process, step, int(indices[start]), size, known[same]))
    return tuple(rows), tuple(sequences)


def _bytes(numbers: Floats) -> tuple[Bytes, tuple[float, float] | None]:
    """Numbers as bytes, 1 the least and 255 the largest; 0 where there is none, a NaN."""
    finite = np.isfinite(numbers)
    scaled = np.zeros(len(numbers), dtype=np.uint8)
    scaled[numbers == np.inf] = 255
    if not finite.any():
        return scaled, None
    low, high = float(numbers[finite].min()), float(numbers[finite].max())
    share = (numbers[finite] - low) / ((high - low) or 1.0)
    scaled[finite] = 1 + np.round(254 * share).astype(np.uint8)
    return scaled, (low, high)


def _mark(grid: Grid, findings: Sequence[Finding]) -> None:
    """Findings' own calls, in the plane of health."""
    wanted = {(one.rank, one.step) for one in findings}
    at = {
        (row.rank, row.step): (number, row)
        for number, row in enumerate(grid.rows)
        if (row.rank, row.step) in wanted
    }
    for finding in findings:
        numbered_row = at.get((finding.rank, finding.step))
        column = None
        if numbered_row is not None and finding.index is not None:
            column = grid.place(numbered_row[1], finding.index)
        if numbered_row is not None and column is not None:
            grid.planes["health"][numbered_row[0], column // grid.fold] = ORIGIN
