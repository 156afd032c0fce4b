# SPDX-License-Identifier: Apache-2.0
"""Verdicts and comparisons in a notebook: readable without scripts, whole with them."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from tests.cli.cli_runs import write_run
from view_runs import overflowing

import opscope
from opscope.compare.api import compare
from opscope.run.finding import Document, Finding, Slot
from opscope.view import notebook
from opscope.view.notebook import comparison_html, document_html


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", tmp_path / "train.py")


def test_a_verdict_stands_before_its_picture_and_its_page(recorded: Path) -> None:
    document = opscope.scan(opscope.open_run(recorded))
    said = document_html(document)
    assert said.startswith(document._repr_html_())
    assert said.index("<img") < said.index("<iframe")
    assert "<script" not in said
    assert "allow-same-origin" not in said


def test_what_a_run_has_lost_is_told_without_it(recorded: Path) -> None:
    document = opscope.scan(opscope.open_run(recorded))
    shutil.rmtree(recorded)
    assert document_html(document) == document._repr_html_()


def test_other_documents_are_told_as_they_are(recorded: Path) -> None:
    document = opscope.scan(opscope.open_run(recorded))
    replayed = msgspec.structs.replace(document, verb="replay")
    assert document_html(replayed) == replayed._repr_html_()


def test_a_comparison_shows_its_page() -> None:
    comparison = compare(overflowing(steps=3), overflowing(steps=4))
    said = comparison_html(comparison)
    assert said.startswith(comparison._repr_html_())
    assert "<iframe" in said


def test_a_page_that_is_too_large_is_left_to_a_file(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notebook, "MOST_PAGE", 10)
    said = document_html(opscope.scan(opscope.open_run(recorded)))
    assert "<iframe" not in said
    assert "opscope report" in said


def test_a_finding_shows_its_tensors_and_nothing_of_a_run_is_markup() -> None:
    slot = Slot(slot="<b>0", dtype="float32", shape=(2,), stats={"max": 3.0, "nan": 1})
    finding = Finding(kind="overflow-origin", op="a<script>", outputs=(slot,))
    for said in (
        finding._repr_html_(),
        Document(opscope="0", verb="scan", findings=(finding,))._repr_html_(),
    ):
        assert "&lt;b&gt;0" in said
        assert "a&lt;script&gt;" in said
        assert "<td>3</td>" in said
        assert "<script" not in said
