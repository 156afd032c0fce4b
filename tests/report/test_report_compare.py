# SPDX-License-Identifier: Apache-2.0
"""The tables of a comparison as files: msprobe's columns and one more, nothing called pass that was
not compared, nothing evaluated.
"""

from __future__ import annotations

import csv
import json
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from opscope.compare.pair.tensors import STATUS_WORDS
from opscope.errors import UsageError
from opscope.kernels.metrics import Metric
from opscope.kernels.pair import pair
from opscope.report import compare_csv, compare_rows, compare_xlsx, spreadsheet
from opscope.run.access import Access
from opscope.run.finding import Document, Finding
from opscope.run.schema import Call, Tensor, ValueRef
from opscope.view.compare_files import check_output, write_comparison

NASTY = '=cmd|"/c calc"!A0</script><img src=x onerror=alert(1)>&\x00\ud800'
EXPECTED_ALL = (
    "NPU Name,Bench Name,NPU Dtype,Bench Dtype,NPU Tensor Shape,Bench Tensor Shape,NPU "
    "Requires_grad,Bench Requires_grad,Cosine,EucDist,"
    "MaxAbsErr,MaxRelativeErr,One Thousandth Err Ratio,Five Thousandths Err Ratio,NPU max,NPU "
    "min,NPU mean,NPU l2norm,Bench max,Bench min,"
    "Bench mean,Bench l2norm,Requires_grad "
    "Consistent,Result,Err_message,NPU_Stack_Info,Data_name,Verdict"
)


def call(index: int, name: str) -> Call:
    return Call(
        process=1,
        rank=0,
        step=0,
        index=index,
        level="api",
        phase="forward",
        op="mm",
        name=name,
        source="/u/net.py:3",
    )


def tensor(index: int, slot: str = "0", **more: Any) -> Tensor:
    known = {
        "requires_grad": True,
        "value": ValueRef(f"dump/t{index}.npy", ""),
        "shape": (2, 2),
        "dtype": "float32",
        **more,
    }
    return Tensor(
        process=1,
        index=index,
        io="output",
        slot=slot,
        max=4.0,
        min=-2.0,
        mean=1.0,
        l2norm=5.0,
        digest=7,
        **known,
    )


def detail(row: int, **fields: Any) -> Any:
    known = {
        "target_call": call(row, f"Functional.mm.{row}.forward"),
        "golden_call": call(row, f"Functional.mm.{row}.forward"),
        "target": tensor(row),
        "golden": tensor(row),
        "error": 0.0,
        "allowed": 0.0,
        "status": "same",
        "verdict": "same",
        "metrics": None,
        "message": "",
        "lost": "",
    }
    return SimpleNamespace(row=row, **{**known, **fields})


class Rows:
    """What rows tell of details: places are numbers of details, -1 where a side has nothing."""

    def __init__(self, details: list[Any]) -> None:
        self.error, self.allowed = (
            np.array([one.error for one in details]),
            np.array([one.allowed for one in details]),
        )
        self.status = np.array([STATUS_WORDS.index(one.status) for one in details])
        for name in ("target", "golden", "target_call", "golden_call"):
            setattr(
                self,
                name,
                np.array(
                    [-1 if getattr(one, name) is None else row for row, one in enumerate(details)]
                ),
            )

    def __len__(self) -> int:
        return len(self.error)


class Fake:
    """A comparison with given rows, as compare.tell.comparison.Comparison shows it to reports."""

    def __init__(
        self,
        details: list[Any],
        *,
        kept: bool = True,
        norm: float = 5.0,
        values: dict[str, Any] | None = None,
    ) -> None:
        self.all, self.rows = details, Rows(details)
        self.pairing = SimpleNamespace(
            **{
                name: side(details, name, (values or {}).get(name), kept, norm)
                for name in ("target", "golden")
            }
        )
        self.measured = SimpleNamespace(
            pairs={one.row: one.metrics for one in details if one.metrics is not None},
            unreadable={one.row: one.message for one in details if one.message},
            lost=(frozenset(), frozenset()),
        )
        finding = Finding(
            kind="divergence-origin", op="mm", call=NASTY, source=NASTY, reasons=(NASTY,)
        )
        self.document = Document(
            opscope="0", verb="compare", runs=(NASTY, "g"), verdict="found", findings=(finding,)
        )

    def verdicts(self, rows: Any) -> list[str]:
        return [self.all[row].verdict for row in rows]

    def details(self, rows: Any = None) -> Any:
        return iter(self.all if rows is None else [self.all[row] for row in rows])


def side(details: list[Any], name: str, value: Any, kept: bool, norm: float) -> Any:
    tables = {
        "calls": [getattr(one, f"{name}_call") for one in details],
        "tensors": [getattr(one, name) for one in details],
    }
    numbers = np.arange(len(details))
    tensors = SimpleNamespace(
        kept=np.array([kept]), l2norm=np.array([norm]), max=np.array([norm]), row=numbers
    )
    run = SimpleNamespace(access=Access(rows=tables.__getitem__), value=lambda _: value)
    return SimpleNamespace(run=run, calls=SimpleNamespace(row=numbers), tensors=tensors)


def comparison(**options: Any) -> Any:
    metrics = pair(np.array([[1, 2], [3, 4.5]], np.float32), np.array([[1, 2], [3, 4]], np.float32))
    rows = [
        detail(0),
        detail(1, status="differs", verdict="origin", error=0.1, allowed=0.001, metrics=metrics),
        detail(2, status="differs", verdict="receiver", error=0.1, allowed=1.0, metrics=metrics),
        detail(
            3,
            status="only in target",
            verdict="structural",
            golden=None,
            golden_call=None,
            error=np.nan,
        ),
        detail(
            4, status="not measured", verdict="unknown", target=tensor(4, value=None), error=np.nan
        ),
        detail(
            5,
            status="shape differs",
            verdict="receiver",
            error=np.inf,
            golden=tensor(5, shape=(4,)),
        ),
        detail(6, target_call=call(6, NASTY), message=NASTY),
    ]
    return Fake(rows, **options)


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_csv_has_the_columns_users_know_and_one_more(tmp_path: Path) -> None:
    write_comparison(comparison(), tmp_path / "c.csv")
    rows = table(tmp_path / "c.csv")
    assert ",".join(rows[0]) == EXPECTED_ALL
    assert [row["Result"] for row in rows] == [
        "pass",
        "error",
        "warning",
        "unmatched",
        "N/A",
        "error",
        "pass",
    ]
    assert [row["Verdict"] for row in rows][:4] == ["same", "origin", "receiver", "structural"]
    assert [rows[1][name] for name in ("EucDist", "MaxAbsErr", "One Thousandth Err Ratio")] == [
        "0.5",
        "0.5",
        "0.75",
    ]
    assert [rows[0][name] for name in ("Cosine", "EucDist", "Data_name")] == [
        "1.0",
        "0.0",
        "['t0.npy', 't0.npy']",
    ]
    assert (rows[3]["Bench Name"], rows[3]["Cosine"]) == ("N/A", "unsupported")
    assert "Bench api/module unmatched." in rows[3]["Err_message"]
    assert rows[5]["Cosine"] == "shape unmatched"
    assert json.loads(rows[1]["Err_message"]) == ["off by 0.1 of golden's scale, 0.001 is allowed"]
    assert list(tmp_path.iterdir()) == [tmp_path / "c.csv"]


def test_tables_of_statistics_and_of_digests(tmp_path: Path) -> None:
    write_comparison(comparison(kept=False), tmp_path / "s.csv")
    rows = table(tmp_path / "s.csv")
    assert list(rows[0])[8:16] == list(compare_rows.SUMMARY)
    assert (rows[0]["Max diff"], rows[0]["NormRelativeErr"], rows[3]["Max diff"]) == (
        "0.0",
        "0",
        "N/A",
    )
    write_comparison(comparison(kept=False, norm=np.nan), tmp_path / "d.csv")
    rows = table(tmp_path / "d.csv")
    assert list(rows[0])[8:10] == ["NPU MD5", "BENCH MD5"]
    assert rows[0]["NPU MD5"] == f"{7:016x}"


def test_no_cell_is_a_formula(tmp_path: Path) -> None:
    write_comparison(comparison(), tmp_path / "c.csv")
    assert table(tmp_path / "c.csv")[6]["NPU Name"].startswith("'=cmd")
    write_comparison(comparison(), tmp_path / "c.xlsx")
    cells = sheet(tmp_path / "c.xlsx")
    assert ",".join(cells[0]) == EXPECTED_ALL
    assert cells[7][0].startswith("'=cmd")
    with zipfile.ZipFile(tmp_path / "c.xlsx") as archive:
        assert b"<f>" not in archive.read("xl/worksheets/sheet1.xml")


def sheet(path: Path, number: int = 1) -> list[list[Any]]:
    space = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
    with zipfile.ZipFile(path) as archive:
        tree = ElementTree.fromstring(archive.read(f"xl/worksheets/sheet{number}.xml"))
    return [
        [
            cell.findtext(f"{space}v")
            or "".join(text.text or "" for text in cell.iter(f"{space}t"))
            for cell in row.iter(f"{space}c")
        ]
        for row in tree.iter(f"{space}row")
    ]


def test_long_tables_go_on_in_parts(tmp_path: Path) -> None:
    written = compare_csv.write_comparison_csv(comparison(), tmp_path / "c.csv", most=3)
    assert [path.name for path in written] == ["c.csv", "c_part_1.csv", "c_part_2.csv"]
    assert [len(table(path)) for path in written] == [3, 3, 1]
    count = spreadsheet.write_workbook(
        tmp_path / "c.xlsx", ["a"], ((0, [n]) for n in range(5)), most=2
    )
    assert (count, [sheet(tmp_path / "c.xlsx", n) for n in (1, 3)]) == (
        3,
        [[["a"], ["0"], ["1"]], [["a"], ["4"]]],
    )
    assert spreadsheet.write_workbook(tmp_path / "none.xlsx", ["a"], []) == 1


def test_where_to_write_is_checked(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.csv, \.xlsx, \.html, \.json"):
        check_output(tmp_path / "c.pdf")
    with pytest.raises(UsageError, match="no such folder"):
        check_output(tmp_path / "none" / "c.csv")


def test_a_users_own_metric_is_one_column_more(tmp_path: Path) -> None:
    def spread(target: Any, golden: Any) -> float:
        return float(np.ptp(target - golden))

    found = comparison(values={"target": np.array([[1.0, 2.0]]), "golden": np.array([[1.0, 1.5]])})
    write_comparison(found, tmp_path / "c.csv", [Metric("Spread", spread)])
    rows = table(tmp_path / "c.csv")
    assert list(rows[0])[13:16] == ["Five Thousandths Err Ratio", "Spread", "NPU max"]
    assert [row["Spread"] for row in rows] == [
        "0.5",
        "0.5",
        "0.5",
        "unsupported",
        "unsupported",
        "0.5",
        "0.5",
    ]


def test_a_workbook_says_what_it_leaves_out(tmp_path: Path) -> None:
    assert write_comparison(comparison(), tmp_path / "c.xlsx") == 0
    assert compare_xlsx.write_comparison_xlsx(comparison(), tmp_path / "c.xlsx", most=3) == 4
    rows = sheet(tmp_path / "c.xlsx")
    assert [row[-1] for row in rows] == [
        "Verdict",
        "structural",
        "unknown",
        "receiver",
        compare_rows.left_out(4),
    ]


def test_own_metrics_stand_in_the_document(tmp_path: Path) -> None:
    found = comparison(values={"target": np.array([1.0, 2.0]), "golden": np.array([1.0, 1.5])})
    found.worst = lambda count: found.all[1:3][:count]
    metric = Metric("Gap", lambda target, golden: float((target - golden).max()))
    write_comparison(found, tmp_path / "c.json", [metric])
    name = "Functional.mm.1.forward.output.0"
    told = json.loads((tmp_path / "c.json").read_text())["summary"]["metrics"]
    assert told[0] == {"row": name, "golden": name, "Gap": 0.5}
    assert len(told) == 2
