# SPDX-License-Identifier: Apache-2.0
"""Run directories that are torn, empty, foreign, newer or hostile."""

from __future__ import annotations

import json
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_rows import append_step, call, new_run, tensor

from opscope.errors import FormatError, MissingValueError, NewerFormatError, OpscopeError
from opscope.formats.registry import open_run
from opscope.run.arrow import decode_stream, encode_rows, table_schema
from opscope.run.database import sql
from opscope.run.query import columns
from opscope.run.schema import TABLES
from opscope.run.store.ipc import IpcFile
from opscope.run.store.layout import create_run, seal_run, update_process
from opscope.run.store.reader import NativeRun
from opscope.run.store.tables import TableFile


def small_run(directory: Path) -> tuple[Path, Path]:
    """A sealed run of three steps of four calls, and its process directory."""
    path, writer = new_run(directory)
    ref = writer.keep_value(np.arange(6, dtype=np.float32), dtype="float32", shape=(2, 3))
    for step in range(3):
        append_step(writer, step, value=ref)
    writer.close(0)
    seal_run(path)
    return path, writer.directory


@pytest.mark.parametrize("table", ["calls", "tensors"])
def test_torn_at_every_byte_of_the_last_batch(tmp_path: Path, table: str) -> None:
    path, process = small_run(tmp_path)
    file = process / f"{table}.arrow"
    whole = file.read_bytes()
    last = IpcFile(file).batches[-1].offset
    end = len(whole) - 8  # the marker of the end
    for size in (*range(last + 1, end), end + 1, end + 7):
        file.write_bytes(whole[:size])
        expected, torn_at = (2, last) if size < end else (3, end)
        stream = IpcFile(file)
        assert (len(stream.batches), stream.torn, stream.torn_reason) == (
            expected,
            torn_at,
            "torn",
        ), size
        if size % 64:
            continue
        run = NativeRun(path)
        assert [row.index for row in decode_stream(table, run.table(table))] == list(
            range(4 * expected)
        ), size
        assert run.problems == (
            f"{file} at byte {torn_at}: torn, {expected} whole batches read",
        ), size


def test_a_file_cut_between_batches_or_without_its_end_is_whole(tmp_path: Path) -> None:
    path, process = small_run(tmp_path)
    update_process(process, rows={})  # as of a process that was killed: nobody counted
    file = process / "calls.arrow"
    whole = file.read_bytes()
    for size, steps in ((len(whole) - 8, 3), (IpcFile(file).batches[2].offset, 2)):
        file.write_bytes(whole[:size])
        run = NativeRun(path)
        assert (len(list(decode_stream("calls", run.table("calls")))), run.problems) == (
            4 * steps,
            (),
        )


def test_a_table_of_a_closed_process_that_is_gone_or_cut_between_batches_is_missed(
    tmp_path: Path,
) -> None:
    path, process = small_run(tmp_path)
    file = process / "calls.arrow"
    file.write_bytes(file.read_bytes()[: IpcFile(file).batches[2].offset])
    (process / "tensors.arrow").unlink()
    told = "rows that were written are here: a file was left behind or cut, copy the run again"
    assert NativeRun(path).problems == (
        f"{file}: 8 of the 12 {told}",
        f"{process / 'tensors.arrow'}: 0 of the 12 {told}",
    )


def test_rows_that_left_with_old_steps_are_not_missed(tmp_path: Path) -> None:
    path, writer = new_run(tmp_path, keep=4)
    for step in range(40):
        append_step(writer, step)
    writer.close(0)
    seal_run(path)
    run = NativeRun(path)
    assert 0 < len(list(decode_stream("calls", run.table("calls")))) < 160
    assert run.problems == ()


@pytest.mark.parametrize("size", [0, 1, 7, 8, 100, 1000])
def test_a_file_torn_in_its_schema(tmp_path: Path, size: int) -> None:
    path, process = small_run(tmp_path)
    file = process / "tensors.arrow"
    file.write_bytes(file.read_bytes()[:size])
    run = NativeRun(path)
    assert list(decode_stream("tensors", run.table("tensors"))) == []
    assert len(list(decode_stream("calls", run.table("calls")))) == 12
    [problem] = run.problems
    assert problem.startswith(f"{file} at byte 0: ")


@given(st.data())
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_flipped_bytes_give_rows_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("flip")
    path, process = small_run(directory)
    file = process / f"{data.draw(st.sampled_from(['calls', 'tensors']))}.arrow"
    content = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    file.write_bytes(content)
    read_all(path)
    shutil.rmtree(directory)


@given(st.data())
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_hostile_numbers_in_metadata(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("numbers")
    path, process = small_run(directory)
    file = process / "tensors.arrow"
    batch = IpcFile(file).batches[1]
    content = bytearray(file.read_bytes())
    at = data.draw(st.integers(batch.offset, batch.body - 8))
    struct.pack_into(
        "<q",
        content,
        at,
        data.draw(st.sampled_from([-1, -(2**63), 2**63 - 1, 2**31, 2**40, 1, 0, 0x7FFFFFF0])),
    )
    file.write_bytes(content)
    read_all(path)
    shutil.rmtree(directory)


def read_all(path: Path) -> None:
    """Use everything a run offers; only errors of opscope, of one line, may come out."""
    run = NativeRun(path)
    questions: list[Callable[[], Any]] = [
        lambda: list(columns(run, "tensors", list(TABLES["tensors"]))),
        lambda: list(columns(run, "calls", list(TABLES["calls"]))),
        lambda: list(sql(run, "SELECT * FROM calls ORDER BY name")),
        lambda: list(sql(run, "SELECT * FROM tensors")),
    ]
    for question in questions:
        refused(question)
    assert all("\n" not in problem for problem in run.problems)
    refused(lambda: [run.value(row) for row in run.tensors_of(0, 5)])


def refused(question: Callable[[], Any]) -> str:
    """What is wrong, in one line, or nothing; any other exception goes through."""
    try:
        question()
    except OpscopeError as error:
        line = str(error)
    else:
        return ""
    assert "\n" not in line
    return line


def test_offsets_of_text_that_point_outside(tmp_path: Path) -> None:
    path, process = small_run(tmp_path)
    file = process / "calls.arrow"
    stream = IpcFile(file)
    batch = stream.batches[0]
    ends = stream.column(batch, "name").buffers[0]
    at = file.read_bytes().index(ends.tobytes(), batch.body)
    for value in (-5, 10**6, 2**31 - 1):
        content = bytearray(file.read_bytes())
        struct.pack_into("<i", content, at + 8, value)
        file.with_name("other.arrow").write_bytes(content)
        broken = IpcFile(file.with_name("other.arrow"))
        with pytest.raises(FormatError, match="offsets"):
            broken.column(broken.batches[0], "name")
    file.with_name("other.arrow").replace(file)
    run = NativeRun(path)
    assert [row["index"] for row in sql(run, 'SELECT "index", name FROM calls')] == [*range(4, 12)]
    [problem] = run.problems
    assert (
        problem
        == f"{file} at byte {batch.offset}: text or list offsets point outside the batch; this "
        "batch was left out"
    )
    run = NativeRun(path)
    found = [batch["index"] for batch in run.columns("calls", ["index", "name"])]
    assert np.concatenate(found).tolist() == list(range(4, 12))
    assert run.problems == (problem,)


class TestShards:
    @pytest.mark.parametrize(
        ("damage", "message"),
        [
            (lambda data: data[:4], "shorter than its header"),
            (lambda data: b"\xff" * 8 + data[8:], "does not fit"),
            (lambda data: data[:8] + b"\x00" * (len(data) - 8), "not that of a shard"),
            (lambda data: data[:-4], "outside the file"),
            (
                lambda data: data.replace(b'"data_offsets":[0,24]', b'"data_offsets":[9,24]'),
                "no whole number",
            ),
            (
                lambda data: data.replace(b'"data_offsets":[0,24]', b'"data_offsets":[24,0]'),
                "outside the file",
            ),
            (
                lambda data: data.replace(b'"data_offsets":[0,24]', b'"data_offsets":"0,24"'),
                "not that of a shard",
            ),
            (lambda data: b"", "cannot be read"),
        ],
    )
    def test_damaged(self, tmp_path: Path, damage: Any, message: str) -> None:
        path, process = small_run(tmp_path)
        shard = process / "values-00000.safetensors"
        shard.write_bytes(damage(shard.read_bytes()))
        run = NativeRun(path)
        with pytest.raises(FormatError, match=message) as caught:
            run.value(run.tensors_of(0, 1)[0])
        assert str(shard) in str(caught.value)

    def test_unknown_key(self, tmp_path: Path) -> None:
        path, process = small_run(tmp_path)
        shard = process / "values-00000.safetensors"
        content = shard.read_bytes()
        key = re.search(rb"[0-9a-f]{32}", content)
        assert key is not None
        shard.write_bytes(content.replace(key[0], b"0" * 32))
        run = NativeRun(path)
        with pytest.raises(MissingValueError, match="holds no value"):
            run.value(run.tensors_of(0, 1)[0])


class TestDirectories:
    def test_nothing_there(self, tmp_path: Path) -> None:
        with pytest.raises(FormatError, match="no such"):
            open_run(tmp_path / "nothing")

    def test_empty(self, tmp_path: Path) -> None:
        for opening in (open_run, NativeRun):
            with pytest.raises(FormatError, match="an empty directory"):
                opening(tmp_path)

    def test_not_a_run(self, tmp_path: Path) -> None:
        (tmp_path / "a.npy").write_bytes(b"x")
        with pytest.raises(FormatError, match=r"1 \.npy files"):
            open_run(tmp_path)
        with pytest.raises(FormatError, match="it has no run"):
            NativeRun(tmp_path)
        with pytest.raises(FormatError, match="a file"):
            NativeRun(tmp_path / "a.npy")

    def test_a_directory_of_runs_names_them(self, tmp_path: Path) -> None:
        create_run(tmp_path / "first")
        create_run(tmp_path / "second")
        with pytest.raises(FormatError, match="first, second"):
            open_run(tmp_path)

    @pytest.mark.parametrize("field", [{"store": 2}, {"schema": [2, 0]}])
    def test_from_a_newer_version(self, tmp_path: Path, field: dict[str, Any]) -> None:
        path, _ = small_run(tmp_path)
        file = path / "run.json"
        file.write_text(
            json.dumps(
                {**json.loads(file.read_text()), **field, "version": "9.0", "something": "new"}
            )
        )
        with pytest.raises(NewerFormatError, match=r"opscope 9\.0.*upgrade") as caught:
            open_run(path)
        assert str(file) in str(caught.value)

    def test_a_newer_minor_schema_is_read(self, tmp_path: Path) -> None:
        path, _ = small_run(tmp_path)
        file = path / "run.json"
        file.write_text(
            json.dumps({**json.loads(file.read_text()), "schema": [1, 99], "something": "new"})
        )
        assert len(list(decode_stream("calls", open_run(path).table("calls")))) == 12

    @pytest.mark.parametrize(
        "content",
        [
            "",
            "{",
            "[]",
            '{"format": "opscope"',
            '{"format": 3}',
            '{"format": "other"}',
            "\x00\x01",
            "null",
        ],
    )
    def test_a_torn_or_foreign_run_json(self, tmp_path: Path, content: str) -> None:
        path, _ = small_run(tmp_path)
        (path / "run.json").write_text(content)
        with pytest.raises(FormatError) as caught:
            open_run(path)
        assert str(path / "run.json") in str(caught.value)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        "content", [None, "", '{"process": "x"}', '{"process": 4294967296, "directory": "p"}']
    )
    def test_a_process_without_its_facts_is_still_read(
        self, tmp_path: Path, content: str | None
    ) -> None:
        path, process = small_run(tmp_path)
        (process / "process.json").unlink()
        if content is not None:
            (process / "process.json").write_text(content)
        run = NativeRun(path)
        assert len(list(decode_stream("calls", run.table("calls")))) == 12
        [problem] = run.problems
        assert str(process / "process.json") in problem

    def test_strange_names_among_the_processes_are_left_alone(self, tmp_path: Path) -> None:
        path, _ = small_run(tmp_path)
        (path / "processes" / "..p-evil-1-1").mkdir()
        (path / "processes" / "p-host-1-1.backup").mkdir()
        (path / "processes" / "number-x").write_text("?")
        assert len(NativeRun(path).processes) == 1

    def test_a_process_directory_name_in_json_is_not_followed(self, tmp_path: Path) -> None:
        path, process = small_run(tmp_path)
        facts = json.loads((process / "process.json").read_text())
        (process / "process.json").write_text(json.dumps({**facts, "directory": "../../../../etc"}))
        run = NativeRun(path)
        assert run.processes[0].directory == process.name
        assert run.value(run.tensors_of(0, 1)[0]).shape == (2, 3)


class TestOtherWriters:
    """Tables that are Arrow but not as TableFile writes them."""

    def rewrite(self, file: Path, types: dict[str, str], rows: list[Any]) -> None:
        from opscope.run.arrow import encode_columns, schema_of

        file.unlink()
        table = TableFile(file, schema_of(types))
        table.write(
            encode_columns(types, [[getattr(row, name, None) for row in rows] for name in types])
        )
        table.close()

    def test_other_order_missing_and_unknown_columns(self, tmp_path: Path) -> None:
        path, process = small_run(tmp_path)
        types = {
            "future": "float64",
            **{name: kind for name, kind in reversed(TABLES["calls"].items()) if name != "task"},
        }
        rows = [call(i, step=i // 4, module="m") for i in range(12)]
        self.rewrite(process / "calls.arrow", types, rows)
        run = NativeRun(path)
        assert list(decode_stream("calls", run.table("calls"))) == rows
        assert run.problems == ()

    def test_another_type_is_refused(self, tmp_path: Path) -> None:
        path, process = small_run(tmp_path)
        self.rewrite(process / "tensors.arrow", {**TABLES["tensors"], "nan": "float64"}, [])
        run = NativeRun(path)
        assert list(decode_stream("tensors", run.table("tensors"))) == []
        assert "column nan has type float64, not int64" in run.problems[0]

    def test_a_torn_copy_is_told(self, tmp_path: Path) -> None:
        path, process = small_run(tmp_path)
        types = dict(reversed(TABLES["calls"].items()))
        file = process / "calls.arrow"
        self.rewrite(file, types, [call(i) for i in range(4)])
        file.write_bytes(file.read_bytes()[:-40])
        run = NativeRun(path)
        assert list(decode_stream("calls", run.table("calls"))) == []
        assert "torn, 0 whole batches read" in run.problems[0]


def test_the_file_grows_while_it_is_read(tmp_path: Path) -> None:
    file = TableFile(tmp_path / "calls.arrow", table_schema("calls"))
    file.write(encode_rows("calls", [call(1)]))
    reading = IpcFile(file.path)
    file.write(encode_rows("calls", [call(2)]))
    assert reading.rows == 1
    assert IpcFile(file.path).rows == 2
    file.close()


def test_tensor_rows_of_a_call_are_found_over_batches(tmp_path: Path) -> None:
    path, writer = new_run(tmp_path)
    for first in (0, 3, 1):
        batch = [tensor(first + i, slot=str(first)) for i in range(3)]
        writer.append("tensors", encode_rows("tensors", batch), step=0)
    writer.close(0)
    assert [row.slot for row in NativeRun(path).tensors_of(0, 3)] == ["3", "1"]
    assert NativeRun(path).tensors_of(0, 77) == ()
    assert NativeRun(path).tensors_of(5, 3) == ()
