# SPDX-License-Identifier: Apache-2.0
"""The timeline: one byte a call, the worst of what is folded, tiles that put together are the
whole.
"""

from __future__ import annotations

import base64

import numpy as np
import pytest
from view_runs import overflowing

from opscope.errors import UsageError
from opscope.run.memory import MemoryRun
from opscope.run.protocol import RunInfo
from opscope.scan.api import scan
from opscope.view import all_calls as cells
from opscope.view.all_calls import AllCalls
from opscope.view.grid import Grid, Row, grid_of
from opscope.view.timeline import TILE, pyramid_of, tile, tiles, timeline_document


def large(rows: int, columns: int) -> Grid:
    plane = np.zeros((rows, columns), dtype=np.uint8)
    plane[rows - 1, columns - 2] = 4
    numbers = np.arange(columns, dtype=np.int64)
    found = tuple(Row(0, 0, step, step * columns, columns, 0) for step in range(rows))
    return Grid(found, columns, 1, {"health": plane}, (numbers,))


def test_a_cell_is_a_call_and_says_how_it_is() -> None:
    run = overflowing(steps=3)
    found = grid_of(AllCalls(run), scan(run).findings)
    assert found.planes["health"].tolist() == [
        [cells.SOUND] * 3,
        [cells.SOUND] * 3,
        [cells.ORIGIN, cells.UNSOUND, cells.UNSOUND],
    ]
    assert found.planes["magnitude"][0].tolist() == [129, 129, 129]  # 2^1 <= 3 < 2^2
    assert found.planes["magnitude"][2].tolist() == [128 + 15, 0, 0]
    assert [row.step for row in found.rows] == [0, 1, 2]
    assert len(found.sequences) == 1


def test_what_does_not_fit_is_folded_to_the_worst() -> None:
    found = grid_of(AllCalls(overflowing(steps=3)), most_cells=6)
    assert found.fold == 2
    assert found.planes["health"].tolist() == [[1, 1], [1, 1], [4, 4]]


def test_own_expression_is_a_plane_with_its_scale() -> None:
    found = grid_of(AllCalls(overflowing(steps=3)), expression="step * 10 + size")
    assert found.scale == (1, 36)
    assert found.planes["own"][2].tolist() == [255, 255, 1 + round(254 * 20 / 35)]


@pytest.mark.parametrize(
    ("words", "scale"),
    [
        ("log2(abs(max))", (np.log2(3), np.log2(65504))),
        ("greatest(abs(min), abs(max), stride)", (3, 65504)),
        ("index", (0, 8)),
        ("1 / size", (1 / 16, 1)),
        ("tensors.size + calls.step", (1, 18)),
        ("CASE WHEN op LIKE '%mm%' THEN 1 ELSE 0 END", (0, 1)),
        ("log2(0)", None),
        ("ln(-size)", None),
        ("json_array_length(shape)", (0, 2)),
    ],
)
def test_an_expression_may_name_any_column(words: str, scale: tuple[float, float] | None) -> None:
    assert grid_of(AllCalls(overflowing(steps=3)), expression=words).scale == scale


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("nothing_of_that_name", "no such column"),
        ("1); DROP TABLE x; SELECT (1", ""),
        ("1)))", ""),
        ("name", "text"),
        ("max(size)", "of several"),
        ("sum(size) OVER ()", "of several"),
        ("(SELECT max(step) FROM calls)", "no more"),
        ("load_extension('x')", "no more"),
    ],
)
def test_an_expression_that_is_none_is_refused(words: str, why: str) -> None:
    with pytest.raises(UsageError, match=f"^colour .*{why}"):
        grid_of(AllCalls(overflowing()), expression=words)


def test_an_expression_reads_no_files(tmp_path) -> None:
    (tmp_path / "x.csv").write_text("a\n1\n")
    with pytest.raises(UsageError):
        grid_of(AllCalls(overflowing()), expression=f"(SELECT a FROM read_csv('{tmp_path}/x.csv'))")


def test_tiles_put_together_are_their_level_and_nothing_wrong_is_lost() -> None:
    pyramid = pyramid_of(large(700, 1300))
    whole = dict(tiles(pyramid))
    assert len(pyramid.levels) == 3
    for number, level in enumerate(pyramid.levels):
        plane = level.planes["health"]
        assert plane.max() == 4
        rebuilt = np.zeros_like(plane)
        for name, found in whole.items():
            at, x, y = map(int, name.split("/"))
            if at == number:
                part = np.frombuffer(base64.b64decode(found["health"]), dtype=np.uint8)
                rebuilt[y * TILE :, x * TILE :][: found["rows"], : found["columns"]] = part.reshape(
                    found["rows"], found["columns"]
                )
        assert (rebuilt == plane).all()
    rows, columns = pyramid.levels[-1].planes["health"].shape
    assert rows <= 256
    assert columns <= 512


@pytest.mark.parametrize("place", [(-1, 0, 0), (9, 0, 0), (0, -1, 0), (0, 0, 99), (0, 99, 0)])
def test_a_tile_that_is_not_there(place: tuple[int, int, int]) -> None:
    assert tile(pyramid_of(large(3, 3)), *place) is None


def test_a_cell_leads_to_its_call() -> None:
    run = overflowing(steps=3)
    calls = AllCalls(run)
    found = timeline_document(calls, pyramid_of(grid_of(calls)))
    (sequence,) = found["sequences"]
    assert np.cumsum(sequence["numbers"]).tolist() == [0, 1, 2]
    assert sequence["names"][0] == "blocks.0:mm#1"
    assert sequence["phases"] == [("forward", 0)]
    assert [row[3] for row in found["rows"]] == [0, 3, 6]


def test_a_run_without_calls_has_no_rows() -> None:
    calls = AllCalls(MemoryRun(RunInfo(path="x", format="opscope")))
    assert timeline_document(calls, pyramid_of(grid_of(calls)))["rows"] == []
