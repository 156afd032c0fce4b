# SPDX-License-Identifier: Apache-2.0
"""A PyTorch recording in the trees of other tools: numpy.load and csv read them, our readers read
them back.
"""

from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import opscope
from opscope.formats.settings.recording import Export
from opscope.formats.tool_tree import COLUMNS, ends, write_tool_tree
from opscope.run.protocol import Run
from opscope.run.query import calls, tensors_of


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("recorded") / "run"
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 8).half()
    with opscope.record(path, values="full") as recording:
        (model(torch.randn(3, 4).half()) * 60000 * 3).float().sum().backward()
    assert recording.path is not None
    return opscope.open_run(recording.path)


def kernels(run: Run) -> dict[str, str]:
    return {call.name: call.op for call in calls(run) if call.level == "operator"}


def test_mindspores_tree_loses_nothing(run: Run, tmp_path: Path) -> None:
    write_tool_tree(
        run,
        "mindspore",
        Export(data="full", net_name="GPT", statistics=tuple(COLUMNS.values())),
        tmp_path / "tree",
    )
    again = opscope.open_run(tmp_path / "tree")
    assert kernels(again) == kernels(run)
    wanted = {
        (call.name, row.io, row.slot): run.value(row)
        for call in calls(run)
        for row in tensors_of(run, call)
        if row.value
    }
    found = {
        (call.name, row.io, row.slot): again.value(row)
        for call in calls(again)
        for row in tensors_of(again, call)
        if row.value
    }
    assert wanted.keys() == found.keys()
    for key, values in wanted.items():
        np.testing.assert_array_equal(found[key], values)


def test_what_is_below_and_above_zero_is_counted_with_the_infinities(
    run: Run, tmp_path: Path
) -> None:
    write_tool_tree(
        run,
        "mindspore",
        Export(data="full", net_name="GPT", statistics=tuple(COLUMNS.values())),
        tmp_path / "tree",
    )
    (table,) = (tmp_path / "tree").glob("rank_0/GPT/*/0/statistic.csv")
    infinite = 0
    with table.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            for path in table.parent.glob(
                f"{row['Op Type']}.{row['Op Name']}.0.0.{row['Timestamp']}.{row['IO']}"
                f".{row['Slot']}.*.npy"
            ):
                values = np.load(path)
                assert (int(row["Positive Zero Count"]), int(row["Negative Zero Count"])) == (
                    (values > 0).sum(),
                    (values < 0).sum(),
                )
                infinite += int(np.isinf(values).sum()) if values.dtype.kind == "f" else 0
    assert infinite


def test_scripts_for_mindspores_tree_work_on_ours(run: Run, tmp_path: Path) -> None:
    write_tool_tree(
        run,
        "mindspore",
        Export(data="full", net_name="GPT", statistics=("max", "md5", "count")),
        tmp_path / "tree",
    )
    (table,) = (tmp_path / "tree").glob("rank_0/GPT/*/0/statistic.csv")
    with table.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0])[10:] == ["Max Value", "Count", "MD5 Value"]
    checked = 0
    for row in rows:
        name = (
            f"{row['Op Type']}.{row['Op Name']}.0.0.{row['Timestamp']}.{row['IO']}"
            f".{row['Slot']}.*.npy"
        )
        for path in table.parent.glob(name):
            values = np.load(path)
            assert values.size == int(row["Count"])
            assert (
                hashlib.md5(values.tobytes(), usedforsecurity=False).hexdigest() == row["MD5 Value"]
            )
            finite = values[np.isfinite(values)]
            assert row["Max Value"] in {"inf", "nan"} or float(row["Max Value"]) == finite.max()
            checked += 1
    assert checked > 10


def test_statistics_only_leaves_no_tensors(run: Run, tmp_path: Path) -> None:
    write_tool_tree(run, "mindspore", Export(data="statistic"), tmp_path / "tree")
    assert not list((tmp_path / "tree").rglob("*.npy"))
    again = opscope.open_run(tmp_path / "tree")
    assert again.info.format == "mindspore"
    assert {call.op for call in calls(again)} >= {"aten__addmm_default"}


def test_asynchronous_tree_with_overflow_files(run: Run, tmp_path: Path) -> None:
    write_tool_tree(
        run,
        "mindspore",
        Export(data="full", synchronous=False, file_format="npy"),
        tmp_path / "tree",
    )
    records = [
        json.loads(path.read_text())
        for path in (tmp_path / "tree").rglob("Opdebug.Node_OpDebug.*.json")
    ]
    assert records
    assert all(record["AI Core"]["status"] for record in records)
    assert opscope.open_run(tmp_path / "tree").info.format == "mindspore"


def test_only_operators_that_overflowed(run: Run, tmp_path: Path) -> None:
    write_tool_tree(run, "acl", Export(only="overflow", synchronous=False), tmp_path / "tree")
    again = opscope.open_run(tmp_path / "tree")
    found = opscope.scan(again).findings
    assert found
    assert found[0].op is not None
    assert "mul" in found[0].op


def test_statistics_of_acl(run: Run, tmp_path: Path) -> None:
    write_tool_tree(run, "acl", Export(data="statistic", synchronous=False), tmp_path / "tree")
    tables = list((tmp_path / "tree").rglob("*.csv"))
    with tables[0].open(encoding="utf-8", newline="") as stream:
        (first, *_) = csv.DictReader(stream)
    assert first["Data Type"].startswith("DT_")
    assert not [
        path
        for path in (tmp_path / "tree").rglob("*")
        if path.is_file() and path.suffix != ".csv" and "OpDebug" not in path.name
    ]


def test_msprobes_tree(run: Run, tmp_path: Path) -> None:
    write_tool_tree(run, "msprobe", Export(), tmp_path / "tree")
    dump = json.loads((tmp_path / "tree/step0/rank0/dump.json").read_text())
    assert any("addmm" in name for name in dump["data"])


@pytest.mark.parametrize(
    ("size", "count", "left"), [(10, 3, [0, 1, 2, 7, 8, 9]), (6, 3, [0, 1, 2, 3, 4, 5]), (0, 3, [])]
)
def test_the_ends_of_a_tensor(size: int, count: int, left: list[int]) -> None:
    assert ends(np.arange(size), count).tolist() == left


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Element types, shapes and names that trees of other tools have trouble with."""

    class Long(torch.nn.Module):
        def __init__(self, inner: torch.nn.Module) -> None:
            super().__init__()
            self.a_name_that_goes_on_and_on_and_on_and_on_and_on_and_on_and_on = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = (
                self.a_name_that_goes_on_and_on_and_on_and_on_and_on_and_on_and_on(x)
            )
            return found

    path = tmp_path_factory.mktemp("odd") / "run"
    model: torch.nn.Module = torch.nn.Linear(4, 4).bfloat16()
    for _ in range(5):
        model = Long(model)
    with opscope.record(path, values="full") as recording:
        out = model(torch.randn(2, 4).bfloat16())
        _ = (
            out > 0,
            out[:0] * 2,
            torch.randn(3, dtype=torch.complex64) * 2j,
            torch.tensor(3.5) * 2,
            torch.arange(3) * 2**40,
        )
        _ = out.to(torch.float8_e4m3fn), torch.arange(5, dtype=torch.uint8) + 250
    assert recording.path is not None
    return opscope.open_run(recording.path)


@pytest.mark.parametrize(
    ("tool", "alone"),
    [("mindspore", False), ("mindspore", True), ("acl", False), ("msprobe", False)],
)
def test_odd_types_shapes_and_names_come_back(
    odd: Run, tool: str, alone: bool, tmp_path: Path
) -> None:
    """alone: without opscope's own list beside the files, as MindSpore itself would have left
    them.
    """
    write_tool_tree(
        odd,
        tool,
        Export(data="full", file_format="bin" if tool == "acl" else "npy"),
        tmp_path / "tree",
    )
    if alone:
        (tmp_path / "tree/opscope.jsonl").unlink()
    again = opscope.open_run(tmp_path / "tree")
    found = {
        (call.name, row.io, row.slot): (row, again.value(row))
        for call in calls(again)
        for row in tensors_of(again, call)
        if row.value
    }
    checked = set()
    for call in calls(odd):
        for row in tensors_of(odd, call):
            if row.value is None or call.level != "operator":
                continue
            back, values = found[call.name, row.io, row.slot]
            assert (back.dtype, back.shape) == (row.dtype, row.shape)
            assert values.tobytes() == odd.value(row).tobytes()
            checked |= {row.dtype, row.shape}
    assert {"bfloat16", "bool", "complex64", "float8_e4m3fn", "uint8", "int64", ()} <= checked
