# SPDX-License-Identifier: Apache-2.0
"""Whole trees of dump files converted: directories kept apart, a selection with a layout, names
behind mapping.csv.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cann_dumps import dump, operator, raw

from opscope.formats.cann.names import stored_name
from opscope.formats.convert import Report, convert
from opscope.formats.layouts import from_host
from opscope.formats.registry import open_run
from opscope.formats.writing.engine import Wanted
from opscope.formats.writing.job import Job
from opscope.run.selection import parse_selection

TREE = "20240101000000/0/resnet/1/{step}"
NAME = "Add.Default_Add-op0.1.2.1700000000000000"


def run_job(source: Path, out: Path, **fields: Any) -> Report:
    return convert([source], Job(out=out, jobs=2, **fields), lambda what, done, total: None)


def values(step: int, io: int) -> np.ndarray[Any, Any]:
    return np.arange(2 * 20 * 3 * 3, dtype=np.float16).reshape(2, 20, 3, 3) + np.float16(
        100 * step + io
    )


def nested(root: Path, *, parent: str = TREE) -> Path:
    """Two steps whose files have one name."""
    for step in (0, 1):
        sides = [
            dump(from_host(values(step, io), "NCHW", "NC1HWC0"), "NC1HWC0", (2, 20, 3, 3))
            for io in (0, 1, 2)
        ]
        path = root / parent.format(step=step) / NAME
        operator(
            path, sides[:2], sides[2:], op_name="Default/Add-op0", dump_time=1700000000000000 + step
        )
    return root


def files(out: Path) -> list[str]:
    return sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())


def test_files_of_one_name_do_not_meet(tmp_path: Path) -> None:
    report = run_job(nested(tmp_path / "dump"), tmp_path / "out", layout="NCHW")
    assert (report.tensors, report.failures, report.problems) == (6, [], [])
    for step in (0, 1):
        folder = tmp_path / "out" / TREE.format(step=step)
        found = [
            np.load(folder / f"{NAME}.{name}.2x20x3x3.npy")
            for name in ("input.0", "input.1", "output.0")
        ]
        assert all(np.array_equal(array, values(step, io)) for io, array in enumerate(found))


def test_only_what_was_written_is_counted(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "older.npy").write_bytes(b"")
    assert run_job(nested(tmp_path / "dump"), tmp_path / "out").tensors == 6


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (Wanted(selection=parse_selection(steps="1")), ["1/input.0", "1/input.1", "1/output.0"]),
        (Wanted(selection=parse_selection(steps="1", io="output")), ["1/output.0"]),
        (
            Wanted(selection=parse_selection(io="input")),
            ["0/input.0", "0/input.1", "1/input.0", "1/input.1"],
        ),
        (Wanted(inputs=(1, 7)), ["0/input.1", "1/input.1"]),
        (
            Wanted(inputs=(0,), outputs=(0,), selection=parse_selection(steps="0")),
            ["0/input.0", "0/output.0"],
        ),
        (Wanted(selection=parse_selection(ops="Mul")), []),
    ],
)
def test_a_selection_goes_with_a_layout(wanted: Wanted, names: list[str], tmp_path: Path) -> None:
    report = run_job(nested(tmp_path / "dump"), tmp_path / "out", layout="NCHW", wanted=wanted)
    assert (report.tensors, report.failures) == (len(names), [])
    prefix = TREE.format(step="")
    assert files(tmp_path / "out") == [
        f"{prefix}{name[0]}/{NAME}.{name[2:]}.2x20x3x3.npy" for name in names
    ]


def test_what_has_no_such_axes_keeps_the_order_of_the_host(tmp_path: Path) -> None:
    """A vector, a matrix in fractals and a layout nobody published lie among the feature maps of
    any network.
    """
    matrix = np.arange(20 * 18, dtype=np.float16).reshape(20, 18)
    sides = [
        raw(np.ones(3, np.float32).tobytes(), (3,), 1),
        dump(from_host(matrix, "ND", "FRACTAL_NZ"), "FRACTAL_NZ", (20, 18)),
        raw(bytes(64), (32,), 2, layout=38),
    ]
    operator(tmp_path / "dump" / NAME, sides, [])
    report = run_job(tmp_path / "dump", tmp_path / "out", layout="NCHW")
    assert (report.tensors, report.failures) == (3, [])
    assert np.array_equal(
        np.load(tmp_path / "out" / f"{NAME}.input.0.3.npy"), np.ones(3, np.float32)
    )
    assert np.array_equal(np.load(tmp_path / "out" / f"{NAME}.input.1.20x18.npy"), matrix)
    assert np.load(tmp_path / "out" / f"{NAME}.input.2.32.npy").size == 32


def test_bad_files_are_told_and_the_rest_of_the_tree_is_written(tmp_path: Path) -> None:
    root = nested(tmp_path / "dump")
    torn = root / TREE.format(step=0) / NAME
    torn.write_bytes(torn.read_bytes()[:40])
    report = run_job(root, tmp_path / "out")
    assert report.tensors == 3
    assert len(report.failures) == 1
    assert str(torn) in report.failures[0]


def test_a_long_name_keeps_its_meaning(tmp_path: Path) -> None:
    """A file stored under a number is converted under its name, which the output's own mapping.csv
    keeps.
    """
    long = f"Add.{'Default_' * 40}Add-op0.1.2.1700000000000000"
    number = stored_name(long)
    operator(tmp_path / "dump" / number, [], [raw(np.ones(2, np.float32).tobytes(), (2,), 1)])
    (tmp_path / "dump" / "mapping.csv").write_text(f"{number},{long}\n")
    report = run_job(tmp_path / "dump", tmp_path / "out")
    assert (report.tensors, report.failures) == (1, [])
    assert f"{long}.output.0.npy" in (tmp_path / "out" / "mapping.csv").read_text()
    assert [call.op for call in open_run(tmp_path / "out").rows("calls")] == ["Add"]  # type: ignore[attr-defined]


def test_dump_files_in_a_tree_of_mindspores(tmp_path: Path) -> None:
    """file_format bin: the run is MindSpore's, the files are CANN's and take a layout all the
    same.
    """
    root = nested(tmp_path / "dump", parent="rank_0/Net/0/{step}")
    assert open_run(root).info.format == "mindspore"
    report = run_job(root, tmp_path / "out", layout="NCHW", kind="msnpy")
    assert (report.tensors, report.failures) == (6, [])
    assert (
        f"rank_0/Net/0/1/{NAME.replace('Default_Add-op0', 'Add-op0')}.output.0.NCHW.npy"
        in files(tmp_path / "out")
    )
