# SPDX-License-Identifier: Apache-2.0
"""Writing a native run and reading it back."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from run_rows import append_step, call, new_run, random_bytes, rows_of, tensor
from safetensors.numpy import load_file

from opscope import narrow
from opscope.errors import FormatError, MissingValueError, RecordError, UsageError
from opscope.narrow import name_of
from opscope.run.arrow import decode_stream, encode_rows
from opscope.run.protocol import Run
from opscope.run.schema import TABLES, Judgement, Stack, ValueRef
from opscope.run.store.layout import (
    create_run,
    installed_packages,
    process_facts,
    public_environment,
    read_run_file,
    seal_run,
    segment_files,
)
from opscope.run.store.reader import NativeRun
from opscope.run.store.retention import parse_keep
from opscope.run.store.segments import SegmentedTables
from opscope.run.store.shards import ShardFile
from opscope.run.store.writer import ProcessWriter


def rows(run: NativeRun, table: str) -> list[Any]:
    return list(decode_stream(table, run.table(table)))


@given(data=st.data())
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_tables_come_back_as_they_went(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path, writer = new_run(tmp_path_factory.mktemp("store"))
    written = {table: [data.draw(rows_of(table)) for _ in range(2)] for table in TABLES}
    for table, batches in written.items():
        for batch in batches:
            writer.append(table, encode_rows(table, batch), step=0)
    writer.close(0)
    run = NativeRun(path)
    own = {"process": 0, "rank": 0}  # constants of the process, whatever the rows say
    for table, batches in written.items():
        expected = [
            {**_dict(row), **{k: v for k, v in own.items() if k in TABLES[table]}}
            for batch in batches
            for row in batch
        ]
        assert repr([_dict(row) for row in rows(run, table)]) == repr(expected)
    assert run.problems == ()


def _dict(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__struct_fields__}


def test_what_lies_where(tmp_path: Path) -> None:
    path, writer = new_run(tmp_path)
    append_step(writer, 0, value=writer.keep_value(b"12345678" * 3, dtype="float32", shape=(2, 3)))
    writer.append(
        "stacks",
        encode_rows("stacks", [Stack(process=0, stack=0, frames=("a.py:1 in f",))]),
        step=0,
    )
    writer.append(
        "judgements",
        encode_rows("judgements", [Judgement(process=0, index=1, kind="nondeterminism")]),
        step=0,
    )
    writer.close(3)
    seal_run(path, overhead=1.25, hidden_calls=7)
    process = path / "processes" / writer.process.directory
    names = {
        "process.json",
        "calls.arrow",
        "tensors.arrow",
        "stacks.arrow",
        "judgements.arrow",
        "values-00000.safetensors",
    }
    assert {entry.name for entry in process.iterdir()} == names
    run = NativeRun(path)
    assert isinstance(run, Run)
    assert (run.info.command, run.info.overhead, run.info.hidden_calls, run.info.sealed) == (
        ("python", "train.py"),
        1.25,
        7,
        True,
    )
    assert (run.processes[0].exit_code, run.processes[0].process) == (3, 0)
    assert read_run_file(path).processes[0].pid == run.processes[0].pid


@pytest.mark.parametrize(
    "name",
    [
        "plain",
        "with space",
        "a+b",
        "训练 运行",
        'it\'s "quoted"',
        "semi;colon & $HOME",
        "-o",
        "ünïcode.arrow",
        "a%20b",
        "a\nb",
    ],
)
def test_any_name_will_do(tmp_path: Path, name: str) -> None:
    path = create_run(tmp_path / name)
    writer = ProcessWriter(path, process_facts())
    ref = writer.keep_value(np.arange(6, dtype=np.float32), dtype="float32", shape=(2, 3))
    append_step(writer, 0, value=ref)
    writer.close(0)
    run = NativeRun(path)
    assert path.name == name
    assert len(rows(run, "calls")) == 4
    assert run.value(run.tensors_of(0, 0)[0]).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_an_existing_path_gets_a_sibling(tmp_path: Path) -> None:
    paths = [create_run(tmp_path / "runs" / "x") for _ in range(3)]
    assert [path.name for path in paths] == ["x", "x-2", "x-3"]
    (tmp_path / "file").write_text("mine")
    assert create_run(tmp_path / "file").name == "file-2"
    assert (tmp_path / "file").read_text() == "mine"


def test_a_run_that_cannot_be_made_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="run directory"):
        create_run(tmp_path / "file" / "run")


def test_secrets_are_left_out(tmp_path: Path) -> None:
    environment = {
        "HF_TOKEN": "hf_secret", "AWS_SECRET_ACCESS_KEY": "aws", "db_password": "pw",
        "MY_AUTH": "x",
        "GOOGLE_APPLICATION_CREDENTIALS": "/k.json",
        "https_proxy": "http://user:hunter2@proxy:8080/", "NO_PROXY": "localhost", "RANK": "3",
        "ODD": "\udcff",
    }  # fmt: skip
    assert public_environment(environment) == {
        "https_proxy": "***",
        "NO_PROXY": "localhost",
        "RANK": "3",
        "ODD": "***",
    }
    path = create_run(tmp_path / "run", environment=environment)
    text = (path / "run.json").read_text()
    assert not any(secret in text for secret in ("hf_secret", "aws", "hunter2", "k.json"))
    assert json.loads(text)["environment"]["RANK"] == "3"


def test_what_a_process_could_import_stands_in_the_run(tmp_path: Path) -> None:
    for entry in (
        "Fast_Ops-2.1.dist-info",
        "old.thing-0.3-py3.9.egg-info",
        "plain",
        "torch-9.9.9+x.dist-info",
        "no-version.dist-info",
    ):
        (tmp_path / "site" / entry).mkdir(parents=True)
    (tmp_path / "later" / "fast_ops-1.0.dist-info").mkdir(parents=True)
    found = installed_packages(
        [str(tmp_path / "missing"), str(tmp_path / "site"), str(tmp_path / "later")]
    )
    assert found == {"fast_ops": "2.1", "old_thing": "0.3", "torch": "9.9.9+x"}
    run = create_run(tmp_path / "run", packages={"python": "3.11", "torch": "1"})
    writer = ProcessWriter(run, msgspec.structs.replace(process_facts(), packages=found))
    writer.close(0)
    assert seal_run(run)
    sealed = read_run_file(run)
    assert sealed.packages == {"python": "3.11", **found}
    assert sealed.processes[0].packages == {}


class TestValues:
    @given(
        st.sampled_from(
            [
                "float16",
                "float32",
                "float64",
                "int8",
                "int64",
                "uint8",
                "bool",
                "complex64",
                "complex128",
            ]
        ).flatmap(
            lambda name: hnp.arrays(
                np.dtype(name), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
            )
        )
    )
    @settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
    def test_bytes_come_back(
        self, tmp_path_factory: pytest.TempPathFactory, array: np.ndarray[Any, Any]
    ) -> None:
        self.check(tmp_path_factory.mktemp("values"), array, str(array.dtype))

    @pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"])
    def test_types_of_ml_dtypes(self, tmp_path: Path, name: str) -> None:
        kind = np.dtype(getattr(ml_dtypes, name))
        values = random_bytes(kind.itemsize * 12).view(kind).reshape(3, 4)
        self.check(tmp_path / "theirs", values, name)
        self.check(tmp_path / "ours", values.view(narrow.dtype(name)), name)

    def check(self, directory: Path, array: np.ndarray[Any, Any], dtype: str) -> None:
        path, writer = new_run(directory)
        ref = writer.keep_value(
            memoryview(array.reshape(-1).view(np.uint8)), dtype=dtype, shape=array.shape
        )
        assert ref is not None
        writer.append(
            "tensors",
            encode_rows("tensors", [tensor(1, dtype=dtype, shape=array.shape, value=ref)]),
            step=0,
        )
        writer.close(0)
        run = NativeRun(path)
        [row] = run.tensors_of(0, 1)
        found = run.value(row)
        assert (name_of(found.dtype), found.shape, found.tobytes()) == (
            name_of(array.dtype),
            array.shape,
            array.tobytes(),
        )
        assert not found.flags.writeable or found.base is None

    def test_a_shard_is_plain_safetensors(self, tmp_path: Path) -> None:
        _, writer = new_run(tmp_path)
        array = np.arange(12, dtype=np.float32).reshape(3, 4)
        first = writer.keep_value(array, dtype="float32", shape=(3, 4))
        second = writer.keep_value(b"\x12\x34", dtype="int4", shape=(3,))
        assert first is not None
        assert second is not None
        writer.close(0)
        loaded = load_file(writer.directory / first.shard)
        assert loaded[first.key].tolist() == array.tolist()
        assert loaded[second.key].tolist() == [0x12, 0x34]

    def test_the_same_bytes_are_stored_once(self, tmp_path: Path) -> None:
        path, writer = new_run(tmp_path)
        data = random_bytes(100_000)
        refs = [writer.keep_value(data, dtype="uint8", shape=(100_000,)) for _ in range(50)]
        refs += [
            writer.keep_value(data.copy(), dtype="float32", shape=(25_000,), seal=True),
            writer.keep_value(data, dtype="uint8", shape=(100_000,)),
        ]
        assert len(set(refs)) == 1
        ref = refs[0]
        assert ref is not None
        writer.append(
            "tensors",
            encode_rows("tensors", [tensor(1, dtype="float32", shape=(25_000,), value=ref)]),
            step=0,
        )
        writer.close(0)
        assert sum(shard.stat().st_size for shard in writer.directory.glob("values-*")) < 101_000
        run = NativeRun(path)
        assert run.value(run.tensors_of(0, 1)[0]).tobytes() == data.tobytes()

    def test_memory_may_change_after_return(self, tmp_path: Path) -> None:
        path, writer = new_run(tmp_path)
        live = np.zeros(3_000_000, dtype=np.float32)
        written = []
        for number in range(6):
            live[:] = number
            ref = writer.keep_value(live, dtype="float32", shape=live.shape)
            written.append(tensor(number, shape=live.shape, value=ref))
        live[:] = -1
        writer.append("tensors", encode_rows("tensors", written), step=0)
        writer.close(0)
        run = NativeRun(path)
        assert [float(run.value(run.tensors_of(0, number)[0]).max()) for number in range(6)] == [
            0,
            1,
            2,
            3,
            4,
            5,
        ]

    def test_sealed_at_once_means_on_disk_now(self, tmp_path: Path) -> None:
        _, writer = new_run(tmp_path, flush_seconds=3600)
        ref = writer.keep_value(b"12345678", dtype="uint8", shape=(8,), seal=True)
        assert ref is not None
        assert load_file(writer.directory / ref.shard)[ref.key].tobytes() == b"12345678"
        writer.close(0)

    def test_shards_are_bounded(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("opscope.run.store.shards.SHARD_BYTES", 10 << 20)
        path, writer = new_run(tmp_path, flush_seconds=3600)
        blocks = [random_bytes(3 << 20, seed) for seed in range(8)] + [random_bytes(11 << 20, 99)]
        refs = [writer.keep_value(block, dtype="uint8", shape=block.shape) for block in blocks]
        rows_ = [
            tensor(i, dtype="uint8", shape=block.shape, value=ref)
            for i, (block, ref) in enumerate(zip(blocks, refs, strict=True))
        ]
        writer.append("tensors", encode_rows("tensors", rows_), step=0)
        writer.close(0)
        assert [
            path.stat().st_size // (1 << 20) for path in sorted(writer.directory.glob("values-*"))
        ] == [9, 9, 6, 11]
        run = NativeRun(path)
        assert all(
            run.value(run.tensors_of(0, i)[0]).tobytes() == block.tobytes()
            for i, block in enumerate(blocks)
        )

    def test_many_small_values_do_not_overflow_the_header(self, tmp_path: Path) -> None:
        path, writer = new_run(tmp_path, flush_seconds=3600)
        kept = [
            writer.keep_value(i.to_bytes(8, "little"), dtype="int64", shape=(1, 1, 1, 1))
            for i in range(5000)
        ]
        rows_ = [
            tensor(i, dtype="int64", shape=(1, 1, 1, 1), value=ref) for i, ref in enumerate(kept)
        ]
        writer.append("tensors", encode_rows("tensors", rows_), step=0)
        writer.close(0)
        assert len(list(writer.directory.glob("values-*"))) > 1
        run = NativeRun(path)
        assert [run.value(run.tensors_of(0, i)[0]).item() for i in (0, 2500, 4999)] == [
            0,
            2500,
            4999,
        ]

    def test_an_expanded_tensor_stores_its_base(self, tmp_path: Path) -> None:
        path, writer = new_run(tmp_path)
        base = np.arange(3, dtype=np.float32).reshape(3, 1)
        ref = writer.keep_value(base, dtype="float32", shape=(3, 1))
        rows_ = [
            tensor(1, shape=(3, 5), stride=(1, 0), value=ref),
            tensor(2, shape=(7, 7), stride=(7, 1), value=ref),
        ]
        writer.append("tensors", encode_rows("tensors", rows_), step=0)
        writer.close(0)
        run = NativeRun(path)
        assert run.value(run.tensors_of(0, 1)[0]).tolist() == np.broadcast_to(base, (3, 5)).tolist()
        with pytest.raises(FormatError, match="do not fill"):
            run.value(run.tensors_of(0, 2)[0])

    def test_types_without_numpy_come_back_as_bytes(self, tmp_path: Path) -> None:
        path, writer = new_run(tmp_path)
        ref = writer.keep_value(b"\x01\x80\x6f", dtype="hifloat8", shape=(3,))
        writer.append(
            "tensors",
            encode_rows("tensors", [tensor(1, dtype="hifloat8", shape=(3,), value=ref)]),
            step=0,
        )
        writer.close(0)
        run = NativeRun(path)
        assert run.value(run.tensors_of(0, 1)[0]).tobytes() == b"\x01\x80\x6f"

    def test_values_that_were_not_kept(self, tmp_path: Path) -> None:
        path, writer = new_run(tmp_path)
        append_step(writer, 0)
        writer.close(0)
        run = NativeRun(path)
        with pytest.raises(MissingValueError, match="not kept"):
            run.value(run.tensors_of(0, 0)[0])

    @pytest.mark.parametrize(
        "shard",
        [
            "../values-00000.safetensors",
            "/etc/passwd",
            "values-00000.safetensors/..",
            "",
            "process.json",
        ],
    )
    def test_a_row_cannot_point_outside(self, tmp_path: Path, shard: str) -> None:
        path, writer = new_run(tmp_path)
        writer.append(
            "tensors", encode_rows("tensors", [tensor(1, value=ValueRef(shard, "key"))]), step=0
        )
        writer.close(0)
        run = NativeRun(path)
        with pytest.raises(FormatError, match="not the name of a shard"):
            run.value(run.tensors_of(0, 1)[0])

    def test_a_shard_that_is_gone(self, tmp_path: Path) -> None:
        path, writer = new_run(tmp_path)
        writer.append(
            "tensors",
            encode_rows("tensors", [tensor(1, value=ValueRef("values-00007.safetensors", "key"))]),
            step=0,
        )
        writer.close(0)
        run = NativeRun(path)
        with pytest.raises(MissingValueError, match="values-00007"):
            run.value(run.tensors_of(0, 1)[0])


def test_rows_wait_for_their_shard_and_come_within_the_flush_time(tmp_path: Path) -> None:
    path, writer = new_run(tmp_path, flush_seconds=0.4)
    ref = writer.keep_value(np.arange(6, dtype=np.float32), dtype="float32", shape=(2, 3))
    append_step(writer, 0, value=ref)
    deadline = time.monotonic() + 240
    while not (found := rows(NativeRun(path), "tensors")) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(found) == 4
    run = NativeRun(path)
    assert run.value(found[0]).tolist() == [
        [0, 1, 2],
        [3, 4, 5],
    ]  # whoever sees the row can read the value
    assert any("still running" in line for line in run.problems)
    writer.close(0)


def test_a_full_queue_makes_the_program_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, writer = new_run(tmp_path, queue_bytes=20_000, flush_seconds=3600)
    gate = threading.Event()
    write, put = SegmentedTables.write, ProcessWriter._put
    handed_over: list[float] = []

    def slow(tables: SegmentedTables, table: str, batch: Any, *, step: int) -> None:
        gate.wait(240)
        write(tables, table, batch, step=step)

    def told(writer: ProcessWriter, job: Any) -> None:
        handed_over.append(time.monotonic())
        put(writer, job)

    monkeypatch.setattr(SegmentedTables, "write", slow)
    monkeypatch.setattr(ProcessWriter, "_put", told)
    batch = encode_rows("calls", [call(i) for i in range(50)])
    feeder = threading.Thread(
        target=lambda: [writer.append("calls", batch, step=0) for _ in range(20)], daemon=True
    )
    feeder.start()
    while not handed_over or time.monotonic() - handed_over[-1] < 0.5:
        feeder.join(0.05)
    assert feeder.is_alive()
    gate.set()
    feeder.join(240)
    writer.close(0)
    assert writer.waited > 0
    assert len(rows(NativeRun(path), "calls")) == 1000
    assert NativeRun(path).processes[0].waited == pytest.approx(writer.waited, abs=0.5)


def test_many_threads_may_write(tmp_path: Path) -> None:
    path, writer = new_run(tmp_path, flush_seconds=0.01)

    def work(first: int) -> None:
        for number in range(first, first + 50):
            ref = writer.keep_value(
                np.full(600, number % 60, dtype=np.float32), dtype="float32", shape=(600,)
            )
            writer.append(
                "tensors", encode_rows("tensors", [tensor(number, shape=(600,), value=ref)]), step=0
            )

    threads = [threading.Thread(target=work, args=(first,)) for first in range(0, 400, 50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close(0)
    run = NativeRun(path)
    assert run.problems == ()
    for number in range(400):
        [row] = run.tensors_of(0, number)
        assert float(run.value(row)[599]) == number % 60


def test_a_wrong_batch_is_the_callers_bug(tmp_path: Path) -> None:
    _, writer = new_run(tmp_path)
    with pytest.raises(RecordError):
        writer.append("calls", encode_rows("tensors", [tensor(1)]), step=0)
    writer.close(0)
    assert writer.failed is None


def test_a_signal_handler_that_records_does_not_wait_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint written by a signal handler may come in the middle of keep_value on the same
    thread.
    """
    path, writer = new_run(tmp_path)
    inner: list[ValueRef | None] = []
    append = ShardFile.append

    def interrupted(file: ShardFile, data: memoryview) -> None:
        if not inner:
            inner.append(writer.keep_value(b"inner value", dtype="uint8", shape=(11,), seal=True))
            append_step(writer, 0)
        append(file, data)

    monkeypatch.setattr(ShardFile, "append", interrupted)
    ref = writer.keep_value(b"outer", dtype="uint8", shape=(5,))
    writer.append(
        "tensors",
        encode_rows("tensors", [tensor(99, dtype="uint8", shape=(5,), value=ref)]),
        step=0,
    )
    writer.close(0)
    assert inner == [None]
    run = NativeRun(path)
    assert run.value(run.tensors_of(0, 99)[0]).tobytes() == b"outer"


class TestProcesses:
    def test_several_processes_of_one_run(self, tmp_path: Path) -> None:
        path = create_run(tmp_path / "run")
        writers = [ProcessWriter(path, process_facts(rank=rank, world=3)) for rank in (0, 2)]
        assert [writer.process.process for writer in writers] == [0, 1]
        for writer in writers:
            append_step(writer, 0)
            writer.close(0)
        seal_run(path)
        run = NativeRun(path)
        assert [(row.process, row.rank) for row in rows(run, "calls")] == [(0, 0)] * 4 + [
            (1, 2)
        ] * 4
        assert run.problems == (f"{path}: no records of rank 1 of 3",)
        assert run.tensors_of(1, 2)[0].process == 1

    def test_ranks_that_were_not_wanted_are_not_missed(self, tmp_path: Path) -> None:
        path = create_run(tmp_path / "run", config={"ranks": "0,2"})
        for rank in (0, 2):
            ProcessWriter(path, process_facts(rank=rank, world=3)).close(0)
        assert NativeRun(path).problems == ()

    def test_a_rank_known_late(self, tmp_path: Path) -> None:
        path, writer = new_run(tmp_path)
        append_step(writer, 0)
        writer.flush()
        writer.update(rank=5, world=8)
        writer.close(0)
        run = NativeRun(path)
        assert {row.rank for row in rows(run, "calls")} == {5}
        assert [set(batch["rank"].tolist()) for batch in run.columns("calls", ["rank"])] == [{5}]

    def test_directories_gathered_from_several_hosts(self, tmp_path: Path) -> None:
        path = create_run(tmp_path / "run")
        for host in ("a", "b"):
            other = create_run(tmp_path / host)
            writer = ProcessWriter(other, process_facts(rank="ab".index(host)))
            append_step(writer, 0)
            writer.close(0)
            (other / "processes" / writer.process.directory).rename(
                path / "processes" / f"p-{host}-1-1"
            )
        run = NativeRun(path)
        assert (
            sorted((row.process, row.rank) for row in rows(run, "calls"))
            == [(0, 0)] * 4 + [(1, 1)] * 4
        )
        assert {row.process for row in rows(run, "tensors")} == {0, 1}


class TestKeep:
    def test_texts(self) -> None:
        assert (parse_keep("last:100"), parse_keep("ALL"), parse_keep(" last:1 ")) == (100, None, 1)
        for text in ("last:0", "last", "10", "last:-1", ""):
            with pytest.raises(UsageError, match="keep"):
                parse_keep(text)

    def test_old_steps_shrink_to_extremes(self, tmp_path: Path) -> None:
        path, writer = new_run(tmp_path, keep=8)
        for step in range(50):
            append_step(writer, step, finding=step == 11)
        writer.close(0)
        run = NativeRun(path)
        steps = {row.step for row in rows(run, "calls")}
        assert set(range(42, 50)) <= steps
        assert 11 in steps
        assert len(steps) <= 8 + 2 + 2
        forgotten = [step for step in range(50) if step not in steps]
        extremes = run.extremes()
        assert sum(row["calls"] for row in extremes) == 4 * len(forgotten)
        assert (min(row["min"] for row in extremes), max(row["max"] for row in extremes)) == (
            -max(forgotten),
            max(forgotten),
        )
        assert sum(row["nan"] for row in extremes) == 6 * len(forgotten)
        assert all(
            row["op"] == "aten::add.Tensor" and row["phase"] == "forward" and row["module"] is None
            for row in extremes
        )
        assert min(row["first_step"] for row in extremes) == 0
        assert run.problems == ()

    def test_shards_go_with_their_steps_but_not_before(self, tmp_path: Path) -> None:
        path, writer = new_run(tmp_path, keep=4, flush_seconds=3600)
        constant = writer.keep_value(
            np.zeros(1000, dtype=np.float32), dtype="float32", shape=(1000,), seal=True
        )
        for step in range(40):
            own = writer.keep_value(
                np.full(1000, step, dtype=np.float32), dtype="float32", shape=(1000,), seal=True
            )
            rows_ = [
                tensor(2 * step, shape=(1000,), value=own),
                tensor(2 * step + 1, shape=(1000,), value=constant),
            ]
            writer.append(
                "calls",
                encode_rows("calls", [call(2 * step, step=step), call(2 * step + 1, step=step)]),
                step=step,
            )
            writer.append("tensors", encode_rows("tensors", rows_), step=step)
            writer.end_step(step)
            writer.flush()
        assert constant is not None
        assert writer.holds(constant)
        writer.close(0)
        assert len(list(writer.directory.glob("values-*"))) <= 7
        run = NativeRun(path)
        for row in rows(run, "tensors"):
            assert float(run.value(row)[0]) == (0 if row.index % 2 else row.index // 2)

    def test_a_value_that_comes_back_after_its_shard_went_is_stored_anew(
        self, tmp_path: Path
    ) -> None:
        path, writer = new_run(tmp_path, keep=2)
        old = writer.keep_value(b"abcdefgh", dtype="uint8", shape=(8,), seal=True)
        for step in range(8):
            append_step(writer, step)
        writer.flush()
        assert old is not None
        assert not writer.holds(old)
        new = writer.keep_value(b"abcdefgh", dtype="uint8", shape=(8,))
        append_step(writer, 8)
        writer.append(
            "tensors",
            encode_rows("tensors", [tensor(99, dtype="uint8", shape=(8,), value=new)]),
            step=9,
        )
        writer.close(0)
        run = NativeRun(path)
        assert run.value(run.tensors_of(0, 99)[0]).tobytes() == b"abcdefgh"

    def test_a_step_that_never_ends_is_bounded(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Every STEP_CALLS calls count as a step; the calls around an overflow stay."""
        monkeypatch.setattr("opscope.run.store.segments.STEP_CALLS", 400)
        path, writer = new_run(tmp_path, keep=4)
        size, batches = 100, 100
        for number in range(batches):
            suspicious = {3: 0x20} if number == 10 else {}
            calls = [call(number * size + i, status=suspicious.get(i)) for i in range(size)]
            writer.append("calls", encode_rows("calls", calls), step=0)
            value = writer.keep_value(
                random_bytes(1000, seed=number), dtype="uint8", shape=(1000,), seal=True
            )
            held = tensor(number * size, dtype="uint8", shape=(1000,), value=value)
            writer.append("tensors", encode_rows("tensors", [held]), step=0)
            writer.flush()
        writer.close(0)
        kept = {row.index // size for row in rows(NativeRun(path), "calls")}
        assert set(range(batches - 16, batches)) <= kept, "the last four times STEP_CALLS calls"
        assert 10 in kept
        assert len(kept) <= 16 + 2 * 4 + 4
        assert len(list(writer.directory.glob("values-*"))) <= len(kept) + 4
        assert sum(row["calls"] for row in NativeRun(path).extremes()) == size * (
            batches - len(kept)
        )

    def test_all_keeps_all_in_one_file(self, tmp_path: Path) -> None:
        path, writer = new_run(tmp_path, keep=None)
        for step in range(300):
            append_step(writer, step)
        writer.close(0)
        assert len(segment_files(writer.directory, "calls")) == 1
        assert len(rows(NativeRun(path), "calls")) == 1200

    @pytest.mark.zoo
    def test_ten_thousand_steps_on_a_bounded_disk(self, tmp_path: Path) -> None:
        path, writer = new_run(tmp_path, keep=100)
        calls = encode_rows(
            "calls",
            [call(i, op=f"aten::op{i % 40}.default", module=f"blocks.{i % 6}") for i in range(40)],
        )
        tensors = encode_rows("tensors", [tensor(i, nan=0, min=0.0, max=1.0) for i in range(40)])
        largest = 0
        for step in range(10_000):
            writer.append("calls", calls, step=step)
            writer.append("tensors", tensors, step=step)
            writer.end_step(step)
            if step % 500 == 499:
                writer.flush()
                largest = max(
                    largest, sum(file.stat().st_size for file in writer.directory.iterdir())
                )
        writer.close(0)
        assert largest < 126 * 30_000  # 125 steps of 80 rows, and the extremes
        run = NativeRun(path)
        assert len(rows(run, "calls")) <= 125 * 40
        assert sum(row["calls"] for row in run.extremes()) + len(rows(run, "calls")) == 400_000
