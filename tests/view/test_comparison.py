# SPDX-License-Identifier: Apache-2.0
"""The page of a comparison: table, modules of both sides, distances, pictures of differences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from view_runs import overflowing

from opscope.compare.api import compare
from opscope.compare.tell.comparison import Comparison
from opscope.view import comparison_page, documents
from opscope.view.all_calls import AllCalls
from opscope.view.comparison import (
    MOST_ROWS,
    Compared,
    calls_that_part,
    comparison_document,
    distance_byte,
    paint_distance,
)
from opscope.view.documents import Documents
from opscope.view.grid import grid_of


@pytest.fixture(scope="module")
def parted() -> Comparison:
    return compare(overflowing(steps=3), overflowing(steps=4))


def told(comparison: Comparison, most: int = MOST_ROWS) -> dict[str, object]:
    return comparison_document(Compared(comparison, comparison.document), most=most)


def test_rows_lead_to_their_calls_and_columns_are_those_of_every_table(parted: Comparison) -> None:
    found = told(parted)
    assert found["columns"][-1] == "Verdict"
    assert len(found["rows"]) == len(found["calls"]) == len(parted.rows)
    assert {len(row) for row in found["rows"]} == {len(found["columns"])}
    place = next(at for at, call in enumerate(found["calls"]) if call[0] == "0.6")
    assert found["calls"][place][1] == "blocks.0"
    assert found["left"] is None
    assert not found["agree"]


def test_the_worst_of_a_module_is_known_to_all_that_hold_it(parted: Comparison) -> None:
    modules = told(parted)["modules"]
    assert modules[""]["parts"] == ["blocks"]
    assert modules[""]["verdict"] == modules["blocks.0"]["verdict"] != "same"
    assert modules["blocks.0"]["target"]
    assert modules["blocks.0"]["golden"]


def test_runs_that_agree_have_no_error_and_no_picture() -> None:
    found = told(compare(overflowing(), overflowing()))
    assert found["modules"][""]["error"] == 0.0
    assert found["pictures"] == []


def test_the_furthest_rows_are_kept_and_the_others_counted(
    parted: Comparison, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(documents, "MOST_ROWS", 3)
    monkeypatch.setattr(comparison_page, "MOST_ROWS", 3)
    found = told(parted, most=3)
    assert len(found["rows"]) == 3
    left = len(parted.rows) - 3
    assert f"{left} rows" in found["left"]
    assert comparison_page.write_comparison_page(parted, tmp_path / "c.html") == left


def test_the_page_of_a_comparison_stands_alone(parted: Comparison, tmp_path: Path) -> None:
    assert comparison_page.write_comparison_page(parted, tmp_path / "c.html") == 0
    text = (tmp_path / "c.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in text.replace("&#x27;", "'")
    assert " src=" not in text
    compared = Compared(parted, parted.document)
    made = Documents(parted.pairing.target.run, parted.document, compared=[compared])
    assert "compare" in made.get("run")["views"]
    assert made.get("timeline")["planes"][-1] == "distance"


def test_several_runs_share_the_rows_of_a_page(parted: Comparison) -> None:
    agreeing = compare(overflowing(steps=3), overflowing(steps=3))
    both = [Compared(each, each.document) for each in (parted, agreeing)]
    found = Documents(parted.pairing.target.run, parted.document, compared=both).whole()
    assert [each["agree"] for each in found["compare"]] == [False, True]
    assert found["compare"][0]["rows"] == told(parted)["rows"]


def test_the_page_holds_the_calls_that_part(parted: Comparison) -> None:
    compared = Compared(parted, parted.document)
    found = Documents(parted.pairing.target.run, parted.document, compared=[compared]).whole()
    leads = calls_that_part(found["compare"][0])
    assert "0.6" in leads
    assert set(leads) <= set(found["calls"])


def test_distances_stand_where_their_calls_are(parted: Comparison) -> None:
    grid = grid_of(AllCalls(parted.pairing.target.run))
    paint_distance(grid, parted)
    plane = grid.planes["distance"]
    assert plane.shape == (3, 3)
    assert plane[2].max() > plane[0].max()


@pytest.mark.parametrize(
    ("error", "byte"), [(0.0, 1), (1.0, 255), (9.0, 255), (0.5, 251), (1e-30, 2), (np.nan, 0)]
)
def test_a_distance_as_a_byte(error: float, byte: int) -> None:
    assert distance_byte(error) == byte
