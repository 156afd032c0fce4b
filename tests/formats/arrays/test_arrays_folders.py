# SPDX-License-Identifier: Apache-2.0
"""Folders of plain arrays: what names say, and the list that opscope lays beside what it
converts.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opscope.errors import FormatError, NewerFormatError
from opscope.formats.arrays import FORMAT, parse_piece
from opscope.formats.manifest import Contents, open_manifest, parse_manifest, write_manifest
from opscope.formats.registry import open_run
from opscope.formats.writing.array_files import write_pt, write_safetensors
from opscope.run.protocol import RunInfo
from opscope.run.schema import Call, Process, Tensor, ValueRef
from opscope.scan.api import scan
from opscope.testing import FormatTests

ONES = np.ones((2, 3), np.float32)
_HOME = tempfile.TemporaryDirectory(prefix="opscope-arrays-")


class TestArrays(FormatTests):
    format = FORMAT

    @staticmethod
    def samples() -> list[Path]:
        folder = Path(_HOME.name) / "plain"
        folder.mkdir(exist_ok=True)
        np.save(folder / "a.npy", ONES)
        np.savez(folder / "b.npz", x=ONES, y=ONES * 2)
        write_pt(folder / "c.pt", ONES)
        write_safetensors(folder / "d.safetensors", {"w": ONES, "v": ONES})
        return [folder, folder / "a.npy", folder / "b.npz", folder / "c.pt"]


def calls(path: Path) -> list[tuple[str, str, int, int]]:
    return [(call.name, call.op, call.rank, call.step) for call in FORMAT.open(path).rows("calls")]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "call", "op", "io", "slot"),
    [
        ("conv1_1.0.1626751239.npy", "conv1_1", "TensorFlow", "output", "0"),
        ("scope_a.b.2.16267512391234.npy", "scope_a.b", "TensorFlow", "output", "2"),
        (
            "Conv2D.Default_Conv2D-op1.2.7.161243956333802.input.1.384x256x3x3.npy",
            "Conv2D.Default_Conv2D-op1",
            "Conv2D",
            "input",
            "1",
        ),
        (
            "Functional.linear.0.forward.input.1.pt",
            "Functional.linear.0.forward",
            "Functional.linear",
            "input",
            "1",
        ),
        (
            "Functional.linear.0.forward.kwargs.mask.pt",
            "Functional.linear.0.forward",
            "Functional.linear",
            "input",
            "kwargs.mask",
        ),
        (
            "Module.fc.Linear.forward.0.parameters.weight.pt",
            "Module.fc.Linear.forward.0",
            "Linear",
            "input",
            "parameters.weight",
        ),
        ("anything at all.npy", "anything at all", "array", "output", None),
    ],
)
def test_names(name: str, call: str, op: str, io: str, slot: str | None) -> None:
    piece = parse_piece("", name, name)
    assert (piece.call, piece.op, piece.io, piece.slot) == (call, op, io, slot)


def test_tensorflow_goldens_come_in_the_order_of_their_times(tmp_path: Path) -> None:
    for name in ("b.0.1626751230.npy", "a.0.1626751239.npy", "b.1.1626751231.npy"):
        np.save(tmp_path / name, ONES)
    assert [name for name, *_ in calls(tmp_path)] == ["b", "a"]


def test_ranks_and_steps_are_folders(tmp_path: Path) -> None:
    for place in ("rank0/step1", "rank0/step0", "rank3/step1"):
        (tmp_path / place).mkdir(parents=True)
        np.save(tmp_path / place / "x.npy", ONES)
    assert [(rank, step) for _, _, rank, step in calls(tmp_path)] == [(0, 0), (0, 1), (3, 1)]


def test_archives_give_an_output_for_each_array(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save(
        {"model": {"w": torch.ones(2), "b": torch.zeros(3)}, "epoch": 3}, tmp_path / "ckpt.pt"
    )
    run = open_run(tmp_path / "ckpt.pt")
    assert [(row.slot, row.tensor_name, row.shape) for row in run.rows("tensors")] == [
        ("model.w", "model.w", (2,)),
        ("model.b", "model.b", (3,)),
    ]  # type: ignore[attr-defined]


def test_one_bad_file_is_one_line(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ONES)
    (tmp_path / "b.npy").write_bytes(b"\x93NUMPY\x01\x00")
    (tmp_path / "c.pt").write_bytes(b"PK\x03\x04torn")
    run = FORMAT.open(tmp_path)
    assert [row.max for row in run.rows("tensors")] == [1.0, None]  # type: ignore[attr-defined]
    assert len(run.problems) == 2


def contents() -> Contents:
    call = Call(
        process=0,
        rank=0,
        step=0,
        index=0,
        level="operator",
        phase="forward",
        op="aten::add",
        name="<root>:add#1",
    )
    row = Tensor(
        process=0,
        index=0,
        io="output",
        slot="0",
        dtype="float32",
        shape=(2, 3),
        value=ValueRef("a.npy", ""),
    )
    return Contents(
        info=RunInfo(path="x", format="opscope"),
        processes=(Process(process=0, directory="."),),
        calls=(call,),
        tensors=(row,),
    )


def test_the_list_gives_the_run_back(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ONES)
    write_manifest(tmp_path, contents())
    run = open_run(tmp_path)
    assert run.info.format == "opscope"
    assert run.rows("calls") == contents().calls  # type: ignore[attr-defined]
    (row,) = run.rows("tensors")  # type: ignore[attr-defined]
    assert (row.size, row.max) == (6, 1.0)


def test_a_torn_or_newer_list(tmp_path: Path) -> None:
    write_manifest(tmp_path, contents())
    path = tmp_path / "opscope.jsonl"
    data = path.read_bytes()
    path.write_bytes(data[:-20])
    run = open_manifest(tmp_path)
    assert (len(run.rows("calls")), len(run.rows("tensors")), len(run.problems)) == (1, 0, 1)  # type: ignore[attr-defined]
    path.write_bytes(data.replace(b'"version":1', b'"version":2', 1))
    with pytest.raises(NewerFormatError):
        open_manifest(tmp_path)
    path.write_bytes(b'{"opscope":3}\n')
    with pytest.raises(FormatError):
        open_manifest(tmp_path)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 400))
def test_any_list(noise: bytes, at: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        write_manifest(Path(place), contents())
        data = (Path(place) / "opscope.jsonl").read_bytes()
    try:
        parse_manifest(data[:at] + noise + data[at:], "opscope.jsonl")
    except FormatError:
        pass


def test_a_list_cannot_point_outside(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    np.save(tmp_path / "secret.npy", ONES)
    made = contents()
    row = Tensor(
        process=0,
        index=0,
        io="output",
        slot="0",
        dtype="float32",
        value=ValueRef("../secret.npy", ""),
    )
    write_manifest(
        tmp_path / "in",
        Contents(info=made.info, processes=made.processes, calls=made.calls, tensors=(row,)),
    )
    run = open_run(tmp_path / "in")
    (found,) = run.rows("tensors")  # type: ignore[attr-defined]
    assert (found.value, found.size) == (None, None)
    assert "lies outside" in run.problems[0]


@pytest.mark.parametrize(
    "record",
    ["Opdebug.Node_OpDebug.59.1597922031178434", "OpDebug.Node_Opdebug.59.7.1597922031178434"],
)
def test_overflow_records_beside_converted_dumps(record: str, tmp_path: Path) -> None:
    """What msaccucmp.py makes of a folder with an overflow: arrays, and the record as JSON, joined
    by task and stream.
    """
    for task in (56, 57):
        np.save(
            tmp_path / f"Add.Default_Add-op{task}.{task}.563.16341559345140{task}.output.0.npy",
            np.ones(2, np.float16),
        )
    document = {
        name: {"model_id": 0, "stream_id": 0, "task_id": 0, "status": 0}
        for name in ("DHA Atomic Add", "L2 Atomic Add")
    }
    core = {"model_id": 514, "stream_id": 563, "task_id": 57, "task_type": 0, "status": 272}
    (tmp_path / f"{record}.output.0.json").write_text(json.dumps(document | {"AI Core": core}))
    run = open_run(tmp_path)
    assert [(call.task, call.status) for call in run.rows("calls")] == [(56, None), (57, 272)]  # type: ignore[attr-defined]
    assert [finding.call for finding in scan(run).findings] == ["Add.Default_Add-op57"]
    (tmp_path / f"{record}.output.1.json").write_text(
        json.dumps(document | {"AI Core": core | {"task_id": 9}})
    )
    (tmp_path / f"{record}.output.2.json").write_text("[]")
    run = open_run(tmp_path)
    lost = run.rows("calls")[-1]  # type: ignore[attr-defined]
    assert (lost.task, lost.status, len(run.problems)) == (9, 272, 1)


def recorded(place: Path) -> Path:
    """A process of a recording, with a shard of values."""
    process = place / "processes" / "p-vm-1-1"
    process.mkdir(parents=True)
    write_safetensors(process / "values-00000.safetensors", {"a": ONES})
    return process


def test_the_shards_of_a_recording_are_no_loose_arrays(tmp_path: Path) -> None:
    """Whoever types `opscope scan .` beside `runs/` is told which runs are there, instead of being
    shown their raw values.
    """
    place = tmp_path / "runs" / "demo"
    recorded(place)
    (place / "run.json").write_text("{}")
    with pytest.raises(FormatError, match=r"it holds runs, open one of them: runs/demo$"):
        open_run(tmp_path)
    np.save(tmp_path / "runs" / "mine.npy", ONES)
    assert [name for name, *_ in calls(tmp_path)] == ["runs/mine"]


def test_a_recording_whose_run_json_is_gone_is_no_folder_of_arrays(tmp_path: Path) -> None:
    (recorded(tmp_path) / "process.json").write_text("{}")
    with pytest.raises(FormatError, match=r"it has no run\.json$"):
        open_run(tmp_path)
