# SPDX-License-Identifier: Apache-2.0
"""How a run and its tables are shown; tests/interop/test_tables.py hands them to real pandas,
polars and pyarrow.
"""

from __future__ import annotations

from pathlib import Path

import nanoarrow
import pytest
from tests.run.run_rows import append_step, call, new_run

import opscope
from opscope.run.finding import Document, Finding
from opscope.run.memory import MemoryRun
from opscope.run.protocol import RunInfo
from opscope.run.schema import TABLES
from opscope.run.store.layout import seal_run

HOSTILE = "<script>alert(1)</script>\x1b[2J\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    run, writer = new_run(tmp_path / "run")
    append_step(writer, 0)
    writer.close()
    seal_run(run)
    return run


def test_a_table_goes_to_arrow_with_the_columns_of_the_schema(path: Path) -> None:
    run = opscope.open_run(path)
    for name, types in TABLES.items():
        table = getattr(run, name)
        assert table.columns == tuple(types)
        stream = nanoarrow.c_array_stream(table)
        assert [child.name for child in stream.get_schema().children] == list(types)


def test_a_table_shows_its_first_rows_and_says_that_there_are_more(path: Path) -> None:
    run = opscope.open_run(path)
    lines = repr(run.calls).splitlines()
    assert lines[0] == f"<calls of {path}: {len(TABLES['calls'])} columns>"
    assert lines[1].startswith("process  rank  step  index")
    assert max(map(len, lines[1:])) <= 100
    many = MemoryRun(RunInfo(path="x", format="test"), calls=[call(n) for n in range(20)])
    assert repr(many.calls).splitlines()[-1] == "…"
    assert repr(many.tensors).splitlines()[0].startswith("<tensors of x")


def test_what_a_run_holds_reaches_neither_the_terminal_nor_the_page_unescaped() -> None:
    run = MemoryRun(
        RunInfo(path=HOSTILE, format=HOSTILE, command=(HOSTILE,)),
        calls=[call(0, name=HOSTILE, op=HOSTILE)],
    )
    finding = Finding(kind="overflow-origin", op=HOSTILE, module=HOSTILE, reasons=(HOSTILE,))
    document = Document(opscope="0", verb="scan", runs=(HOSTILE,), findings=(finding,))
    for shown in (run, run.calls, document):
        assert "\x1b" not in repr(shown)
        page = shown._repr_html_()
        assert "script" in page
        assert "<script" not in page
        assert "\x1b" not in page


def test_a_document_names_its_findings_and_warnings() -> None:
    finding = Finding(kind="overflow-origin", step=5, op="aten::bmm", source="train.py:25")
    document = Document(
        opscope="0",
        verb="scan",
        runs=("runs/x",),
        verdict="found",
        complete=False,
        findings=(finding,),
        summary={"warnings": ["near the limit"]},
    )
    assert repr(document).splitlines() == [
        "<Document scan runs/x: found, incomplete>",
        "1. overflow-origin (proven): step 5, rank 0, aten::bmm, train.py:25",
        "warning: near the limit",
    ]


def test_verbs_take_a_path_or_an_open_run(path: Path) -> None:
    run = opscope.open_run(path)
    assert opscope.open_run(run) is run
    assert opscope.scan(path) == opscope.scan(str(path)) == opscope.scan(run)
    assert repr(opscope.compare(path, run)).startswith("<Comparison of")
    with pytest.raises(opscope.FormatError, match="no such"):
        opscope.scan(path / "nothing")
