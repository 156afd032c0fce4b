# SPDX-License-Identifier: Apache-2.0
"""All calls of a run as a picture: a row for each step of each rank, a column for each call of it,
a byte for what one wants to see.

SQL makes a number of each call's tensors, NumPy puts them side by side; what does not fit is
aggregated to the worst, so that nothing wrong is lost. No row of a run gets into the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.errors import UsageError
from opscope.run.query import connect

if TYPE_CHECKING:
    from opscope.arrays import Array, Bytes, Ints
    from opscope.run.finding import Finding
    from opscope.run.protocol import Run

NONE, SOUND, MASK, NEAR, UNSOUND, ORIGIN = range(6)  # health; of several calls the largest counts
MOST_CELLS = 2_000_000
PLANES = ("health", "magnitude", "zeros")
# 0 is nothing known. magnitude: 128 + floor(log2 of the largest); zeros: their share, 1 to 255.
HEALTH = """max(CASE WHEN size IS NULL THEN 0 WHEN nan + pos_inf > 0 THEN 4
        WHEN coalesce(near_limit, 0) > 0 THEN 3 WHEN neg_inf > 0 THEN 2 ELSE 1 END)"""
_NUMBERS = f"""{HEALTH}::UTINYINT AS health,
    coalesce(max(CASE WHEN greatest(abs(min), abs(max)) > 0 THEN
        least(255, greatest(1, 128 + floor(log2(greatest(abs(min), abs(max))))))
        WHEN min IS NOT NULL THEN 1 END), 0)::UTINYINT AS magnitude,
    coalesce(max(CASE WHEN size > 0 AND dtype LIKE '%float%' THEN 1 + round(254.0 * zero / size)
        END), 0)::UTINYINT AS zeros"""
_FINEST = """level = (SELECT level FROM calls GROUP BY level
    ORDER BY CASE level WHEN 'operator' THEN 0 WHEN 'api' THEN 1 ELSE 2 END LIMIT 1)"""


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
    run: Run,
    findings: Sequence[Finding] = (),
    *,
    expression: str | None = None,
    most_cells: int = MOST_CELLS,
) -> Grid:
    """The picture of a run; findings are marked in it.

    expression is SQL over the columns of calls and tensors, the largest over a call's outputs is
    its value. Raises UsageError where it is none.
    """
    table = _table(run, expression)
    starts = _starts(table)
    sizes = np.diff(np.r_[starts, len(table["index"])])
    rows, sequences = _rows(table, starts, sizes)
    longest = int(sizes.max()) if len(sizes) else 0
    fold = 1
    while len(rows) * -(-longest // fold) > most_cells:
        fold *= 2
    columns = -(-longest // fold)
    column = (np.arange(len(table["index"])) - np.repeat(starts, sizes)) // fold
    cells = np.repeat(np.arange(len(rows)), sizes) * columns + column
    own, scale = _bytes(table["own"]) if expression is not None else (None, None)
    columns_of = {name: table[name] for name in PLANES} | ({} if own is None else {"own": own})
    planes = {}
    for name, values in columns_of.items():
        plane = np.zeros(len(rows) * columns, dtype=np.uint8)
        np.maximum.at(plane, cells, values)
        planes[name] = plane.reshape(len(rows), columns)
    grid = Grid(rows, columns, fold, planes, sequences, scale)
    _mark(grid, findings)
    return grid


def _table(run: Run, expression: str | None) -> dict[str, Array]:
    own = f", max(({expression})::DOUBLE) AS own" if expression is not None else ""
    shown = ", own" if expression is not None else ""
    joined = 'tensors JOIN calls USING (process, "index")' if expression is not None else "tensors"
    query = f"""SELECT calls.rank, calls.process, calls.step, calls."index",
        hash(calls.name) AS named, coalesce(health, 0)::UTINYINT AS health,
        coalesce(magnitude, 0)::UTINYINT AS magnitude, coalesce(zeros, 0)::UTINYINT AS zeros{shown}
        FROM calls LEFT JOIN (SELECT process, "index", {_NUMBERS}{own} FROM {joined}
            WHERE io = 'output' GROUP BY process, "index") found USING (process, "index")
        WHERE {_FINEST} ORDER BY calls.rank, calls.process, calls.step, calls."index" """  # noqa: S608 - the user's own SQL, in a database that neither reads nor writes files
    import duckdb

    with connect(run) as connection:
        try:
            if len(connection.extract_statements(query)) != 1:
                raise UsageError(f"colour {expression!r}: write one expression")
            table: dict[str, Array] = connection.execute(query).fetchnumpy()
        except duckdb.Error as error:
            said = " ".join(str(error).split("LINE 1:")[0].split())
            raise UsageError(f"colour {expression!r}: {said}") from error
    return {
        name: column if name == "own" else np.ma.getdata(column) for name, column in table.items()
    }


def _starts(table: dict[str, Array]) -> Ints:
    """Where in the table each row of the picture begins."""
    if not len(table["index"]):
        return np.empty(0, dtype=np.int64)
    changed = np.zeros(len(table["index"]) - 1, dtype=bool)
    for name in ("rank", "process", "step"):
        changed |= table[name][1:] != table[name][:-1]
    starts: Ints = np.r_[0, np.flatnonzero(changed) + 1].astype(np.int64)
    return starts


def _rows(
    table: dict[str, Array], starts: Ints, sizes: Ints
) -> tuple[tuple[Row, ...], tuple[Ints, ...]]:
    known: dict[bytes, int] = {}
    sequences: list[Ints] = []
    rows = []
    for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
        numbers = table["index"][start : start + size].astype(np.int64)
        relative = numbers - numbers[0]
        same = relative.tobytes() + table["named"][start : start + size].tobytes()
        if same not in known:
            known[same] = len(sequences)
            sequences.append(relative)
        rank, process, step = (int(table[name][start]) for name in ("rank", "process", "step"))
        rows.append(Row(rank, process, step, int(numbers[0]), size, known[same]))
    return tuple(rows), tuple(sequences)


def _bytes(values: Array) -> tuple[Bytes, tuple[float, float] | None]:
    """Numbers as bytes, 1 the least and 255 the largest; 0 where there is none."""
    numbers = np.ma.filled(np.ma.asarray(values, dtype=np.float64), np.nan)
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
