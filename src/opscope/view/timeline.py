# SPDX-License-Identifier: Apache-2.0
"""The timeline: a grid of all calls at many scales, cut into tiles of which a page draws those it
needs.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.run.keys import keys_of
from opscope.view.grid import Grid

if TYPE_CHECKING:
    from opscope.arrays import Bytes
    from opscope.view.all_calls import AllCalls

TILE = 256  # cells of a tile's side
COARSE = (512, 256)  # columns and rows that the coarsest level has at most
MOST_SEQUENCES, MOST_NAMES = 24, 60_000


class Level(msgspec.Struct, frozen=True):
    """A grid at one scale: how many columns and rows of the first level a cell covers."""

    across: int
    down: int
    planes: dict[str, Bytes]


class Pyramid(msgspec.Struct, frozen=True):
    """Levels of a grid, the finest first."""

    grid: Grid
    levels: tuple[Level, ...]


def pyramid_of(grid: Grid) -> Pyramid:
    """Each level halves what is too long of the one before; of cells that become one the largest
    stays.
    """
    levels = [Level(1, 1, grid.planes)]
    while True:
        last = levels[-1]
        rows, columns = next(iter(last.planes.values())).shape
        across, down = 1 + (columns > COARSE[0]), 1 + (rows > COARSE[1])
        if across == down == 1:
            return Pyramid(grid, tuple(levels))
        planes = {name: _pooled(plane, across, down) for name, plane in last.planes.items()}
        levels.append(Level(last.across * across, last.down * down, planes))


def _pooled(plane: Bytes, across: int, down: int) -> Bytes:
    rows, columns = plane.shape
    padded = np.pad(plane, ((0, -rows % down), (0, -columns % across)))
    shape = (padded.shape[0] // down, down, padded.shape[1] // across, across)
    pooled: Bytes = padded.reshape(shape).max(axis=(1, 3))
    return pooled


def tile(pyramid: Pyramid, level: int, x: int, y: int) -> dict[str, Any] | None:
    """Bytes of one tile by plane, in base64; None where there is none."""
    if not 0 <= level < len(pyramid.levels) or x < 0 or y < 0:
        return None
    planes = pyramid.levels[level].planes
    cut = {
        name: plane[y * TILE : (y + 1) * TILE, x * TILE : (x + 1) * TILE]
        for name, plane in planes.items()
    }
    rows, columns = next(iter(cut.values())).shape
    if not rows or not columns:
        return None
    told = {name: base64.b64encode(part.tobytes()).decode() for name, part in cut.items()}
    return {"columns": columns, "rows": rows, **told}


def tiles(pyramid: Pyramid) -> Iterator[tuple[str, dict[str, Any]]]:
    """All tiles, by level, x and y: `0/3/1`."""
    for number, level in enumerate(pyramid.levels):
        rows, columns = next(iter(level.planes.values())).shape
        for y in range(-(-rows // TILE)):
            for x in range(-(-columns // TILE)):
                made = tile(pyramid, number, x, y)
                if made is not None:
                    yield f"{number}/{x}/{y}", made


def timeline_document(calls: AllCalls, pyramid: Pyramid) -> dict[str, Any]:
    """What the page needs to know before it asks for tiles: scales, rows, and the calls of a row by
    name.
    """
    grid = pyramid.grid
    return {
        "columns": grid.columns,
        "fold": grid.fold,
        "tile": TILE,
        "planes": list(grid.planes),
        "scale": grid.scale,
        "rows": [msgspec.structs.astuple(row) for row in grid.rows],
        "levels": [[level.across, level.down] for level in pyramid.levels],
        "sequences": list(_sequences(calls, grid)),
    }


def _sequences(calls: AllCalls, grid: Grid) -> Iterator[dict[str, Any]]:
    """Relative numbers, names and phases of the calls of each list that the rows have, as many as
    there is room for.
    """
    told = 0
    for number, relative in enumerate(grid.sequences[:MOST_SEQUENCES]):
        told += len(relative)
        if told > MOST_NAMES:
            return
        row = next(row for row in grid.rows if row.sequence == number)
        numbers = relative + row.begin
        rows = calls.rows(keys_of(np.full_like(numbers, row.process), numbers))
        yield {
            "numbers": np.diff(relative, prepend=0).tolist(),
            "names": calls.texts("name").at(rows),
            "phases": _stretches(calls.texts("phase").at(rows)),
        }


def _stretches(phases: Sequence[str]) -> list[tuple[str, int]]:
    """Each phase with where it begins."""
    return [
        (phase, column)
        for column, phase in enumerate(phases)
        if column == 0 or phases[column - 1] != phase
    ]
