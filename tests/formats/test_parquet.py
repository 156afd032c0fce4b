# SPDX-License-Identifier: Apache-2.0
"""Tables of a run as Parquet: written and read back row by row, asked, and refused where they are
not what the list says.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest
import torch

import opscope
from opscope.errors import FormatError, MissingValueError, NewerFormatError, UsageError
from opscope.formats.convert import convert
from opscope.formats.parquet import NAME, VERSION
from opscope.formats.registry import find_format, open_run
from opscope.formats.writing.engine import Wanted
from opscope.formats.writing.job import Job
from opscope.run.database import sql
from opscope.run.memory import MemoryRun
from opscope.run.protocol import RunInfo
from opscope.run.query import records
from opscope.run.schema import TABLES
from opscope.run.selection import Selection

STEPS = 130  # more parts than a writer holds open at once


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of which one step takes the logarithm of a negative number."""
    to = tmp_path_factory.mktemp("parquet") / "run"
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.0)
    with opscope.record(to):
        for step in range(STEPS):
            optimizer.zero_grad()
            made = layer(torch.ones(2, 4)).square() + 1
            (made - 1e3 if step == 77 else made).log().sum().backward()
            optimizer.step()
    return to


@pytest.fixture(scope="module")
def parquet(native: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(native, tmp_path_factory.mktemp("out") / "tables")


def written(source: Path, to: Path, **wanted: Any) -> Path:
    job = Job(out=to, kind="parquet", wanted=Wanted(**wanted))
    report = convert([source], job, lambda *_: None)
    assert not report.failures
    return to


def rows(run: Any, table: str) -> list[Any]:
    found = list(records(open_run(run), table))
    if table == "tensors":
        return [msgspec.structs.replace(row, value=None) for row in found]
    return found


@pytest.mark.parametrize("table", TABLES)
def test_every_row_comes_back_in_its_order(native: Path, parquet: Path, table: str) -> None:
    assert find_format(parquet).name == "parquet"
    assert rows(parquet, table) == rows(native, table)


def test_columns_that_an_older_opscope_did_not_write_are_null(native: Path, tmp_path: Path) -> None:
    older = written(native, tmp_path / "older")
    with duckdb.connect() as other:
        for file in older.glob("tensors/**/*.parquet"):
            kept = file.with_suffix(".kept")
            file.rename(kept)
            query = (
                f"SELECT * EXCLUDE (sample) FROM read_parquet('{kept}', hive_partitioning = false)"
            )
            other.execute(f"COPY ({query}) TO '{file}' (FORMAT parquet)")
            kept.unlink()
    known = rows(native, "tensors")
    assert any(row.sample for row in known)
    assert rows(older, "tensors") == [msgspec.structs.replace(row, sample=None) for row in known]


def test_a_folder_for_each_rank_and_step_that_others_read(native: Path, parquet: Path) -> None:
    with duckdb.connect() as other:
        found = other.execute(
            "SELECT step, count(*) FROM read_parquet(?, hive_partitioning = true) GROUP BY 1",
            [str(parquet / "tensors" / "**" / "*.parquet")],
        ).fetchall()
        kinds = other.execute(
            "SELECT DISTINCT compression, stats_min_value IS NOT NULL FROM parquet_metadata(?) "
            "WHERE path_in_schema = 'l2norm'",
            [str(parquet / "tensors" / "rank=0" / "step=77" / "*.parquet")],
        ).fetchall()
    wanted = (
        "SELECT step, count(*) AS n FROM tensors t JOIN calls c USING (process, index) GROUP BY 1"
    )
    asked = sql(open_run(native), wanted)
    assert dict(found) == {row["step"]: row["n"] for row in asked}
    assert kinds == [("ZSTD", True)]


def test_scan_and_compare_say_of_it_what_they_say_of_the_run(native: Path, parquet: Path) -> None:
    mine, theirs = opscope.scan(parquet), opscope.scan(native)
    assert theirs.findings[0].step == 77
    assert [(one.kind, one.call, one.confidence) for one in mine.findings] == [
        (one.kind, one.call, one.confidence) for one in theirs.findings
    ]
    assert opscope.compare(parquet, native).document.verdict == "clean"


def test_a_selection_is_all_that_is_written(native: Path, tmp_path: Path) -> None:
    some = written(native, tmp_path / "some", selection=Selection(steps=((77, 78),)))
    assert {row.step for row in rows(some, "calls")} == {77, 78}
    assert rows(some, "tensors")
    assert rows(some, "stacks")


@pytest.mark.parametrize("name", ["step=9", "rank=7", "a[1]*b", "q'uote"])
def test_names_of_folders_above_say_nothing(parquet: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(parquet, tmp_path / name / "x")
    assert rows(tmp_path / name / "x", "calls") == rows(parquet, "calls")


def test_tables_without_rows(tmp_path: Path) -> None:
    empty = MemoryRun(RunInfo(path="nothing", format="opscope"))
    from opscope.formats.convert import convert_run

    convert_run(empty, Job(out=tmp_path / "empty", kind="parquet"), lambda _: None)
    assert [rows(tmp_path / "empty", table) for table in TABLES] == [[], [], [], []]


def test_values_are_said_to_be_elsewhere(parquet: Path) -> None:
    run = open_run(parquet)
    with pytest.raises(MissingValueError, match="which holds tables alone"):
        run.value(next(iter(records(run, "tensors"))))


def test_a_table_of_other_columns_is_refused(native: Path, tmp_path: Path) -> None:
    broken = written(native, tmp_path / "broken", selection=Selection(steps=((77, 77),)))
    (place,) = (broken / "calls").rglob("*.parquet")
    place.unlink()
    with duckdb.connect() as other:
        other.execute(f"COPY (SELECT 'text' AS \"index\") TO '{place}' (FORMAT parquet)")
    with pytest.raises(FormatError, match="table calls cannot be read"):
        rows(broken, "calls")
    place.write_bytes(b"PAR1 no more")
    with pytest.raises(FormatError, match="table calls cannot be read"):
        rows(broken, "calls")


def test_links_out_of_the_folder_are_not_followed(native: Path, tmp_path: Path) -> None:
    some = written(native, tmp_path / "some", selection=Selection(steps=((77, 77),)))
    (place,) = (some / "calls").rglob("*.parquet")
    place.rename(tmp_path / "elsewhere.parquet")
    place.symlink_to(tmp_path / "elsewhere.parquet")
    with pytest.raises(FormatError, match="a link that leads out"):
        open_run(some)
    place.unlink()
    assert rows(some, "calls") == []
    assert any("no file of table calls" in problem for problem in open_run(some).problems)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"version": 1}'])
def test_a_list_that_is_none_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(FormatError, match="is no list"):
        open_run(tmp_path)


def test_a_list_of_a_newer_opscope_is_refused(parquet: Path, tmp_path: Path) -> None:
    head = json.loads((parquet / NAME).read_bytes())
    (tmp_path / NAME).write_text(json.dumps({**head, "version": VERSION + 1}))
    with pytest.raises(NewerFormatError):
        open_run(tmp_path)


def test_options_of_other_kinds_are_refused(native: Path, tmp_path: Path) -> None:
    job = Job(out=tmp_path / "x", kind="parquet", layout="NCHW")
    with pytest.raises(UsageError, match="--layout"):
        convert([native], job, lambda *_: None)
