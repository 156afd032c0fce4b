# SPDX-License-Identifier: Apache-2.0
"""Runs behind URLs: tables fetched when they are read, values by ranges, pieces as one file, and
names of a listing that are not taken.
"""

from __future__ import annotations

import gc
import io
import json
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import torch
from tests.run.test_run_merge import part

import opscope
from opscope.cli import main
from opscope.cli.watch import follow
from opscope.errors import FormatError, UsageError
from opscope.formats.registry import open_run
from opscope.run.query import records
from opscope.run.remote import RemoteFolder, piece_name
from opscope.run.store.remote import RemoteRun, open_part


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "run"
    torch.manual_seed(0)
    with opscope.record(path, values="full"):
        for _ in range(3):
            torch.nn.Linear(64, 64)(torch.randn(8, 64)).sum().backward()
    return path


@pytest.fixture
def memory() -> Iterator[Any]:
    store = fsspec.filesystem("memory")
    store.store.clear()
    yield store
    store.store.clear()


def put(store: Any, run: Path, name: str = "one") -> str:
    for path in run.rglob("*"):
        if path.is_file():
            store.pipe_file(f"/runs/{name}/{path.relative_to(run)}", path.read_bytes())
    return f"memory://runs/{name}"


def test_a_run_says_the_same_there(recorded: Path, memory: Any) -> None:
    url = put(memory, recorded)
    there, here = open_run(url), open_run(recorded)
    assert (there.info.path, there.problems) == (url, ())
    assert list(records(there, "calls")) == list(records(here, "calls"))
    row = next(row for row in records(there, "tensors") if row.value is not None)
    assert np.array_equal(there.value(row), here.value(row))
    assert opscope.compare(url, recorded).document.verdict == "clean"


def test_tables_come_when_they_are_read_and_values_by_ranges(
    recorded: Path, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched, read = [], []
    fetch, cat = RemoteFolder.fetch, RemoteFolder.read

    def fetching(self: RemoteFolder, name: str, to: Path, *, more: bool = False) -> None:
        fetched.append(name.rpartition("/")[2])
        fetch(self, name, to, more=more)

    def reading(self: RemoteFolder, name: str, start: int, end: int) -> bytes:
        found = cat(self, name, start, end)
        read.append(len(found))
        return found

    monkeypatch.setattr(RemoteFolder, "fetch", fetching)
    monkeypatch.setattr(RemoteFolder, "read", reading)
    run = open_run(put(memory, recorded))
    assert len(run.processes) == 1
    assert not {"calls.arrow", "tensors.arrow"} & {*fetched}
    row = next(r for r in records(run, "tensors") if r.value is not None and r.shape == (8, 64))
    assert (fetched.count("tensors.arrow"), fetched.count("calls.arrow")) == (1, 0)
    run.value(row)
    shards = sum(path.stat().st_size for path in recorded.rglob("*.safetensors"))
    assert read[-1] == 8 * 64 * 4
    assert sum(read) < shards
    assert not any(name.endswith(".safetensors") for name in fetched)


@pytest.mark.parametrize("lost", [False, True])
def test_pieces_are_one_file_up_to_the_first_that_lacks(
    lost: bool, recorded: Path, memory: Any
) -> None:
    url = put(memory, recorded)
    table = next(str(path) for path in memory.find("/runs/one") if path.endswith("/calls.arrow"))
    data = memory.cat_file(table)
    cuts = [0, 700, 1500, len(data)]
    for start, end in pairwise(cuts):
        if not (lost and start == 700):
            memory.pipe_file(piece_name(table, start), data[start:end])
    memory.rm(table)
    run = open_run(url)
    if lost:
        assert any("calls.arrow" in line and line.startswith(url) for line in run.problems)
    else:
        assert run.problems == ()
        assert list(records(run, "calls")) == list(records(open_run(recorded), "calls"))


def test_a_part_holds_the_processes_that_were_asked_for(recorded: Path, memory: Any) -> None:
    url = put(memory, recorded)
    (directory,) = [path.name for path in (recorded / "processes").glob("p-*")]
    part = open_part(url, [directory])
    assert isinstance(part, RemoteRun)
    assert [process.directory for process in part.processes] == [directory]
    assert not open_part(str(recorded), [directory]).problems


def test_a_dump_of_another_tool_is_read_there(memory: Any) -> None:
    memory.pipe_file("/dumps/a/first.npy", _npy(np.arange(6.0)))
    run = open_run("memory://dumps/a")
    (row,) = records(run, "tensors")
    assert np.array_equal(run.value(row), np.arange(6.0))


def test_tables_as_parquet_are_read_there(recorded: Path, memory: Any, tmp_path: Path) -> None:
    assert (
        main(["convert", str(recorded), "-o", str(tmp_path / "tables"), "--type", "parquet"]) == 0
    )
    url = put(memory, tmp_path / "tables", "tables")
    gc.collect()
    assert opscope.scan(url).verdict == opscope.scan(recorded).verdict == "clean"


def _npy(values: np.ndarray[Any, Any]) -> bytes:
    held = io.BytesIO()
    np.save(held, values)
    return held.getvalue()


@pytest.mark.parametrize(
    ("url", "error", "says"),
    [
        ("memory://nothing/there", FormatError, "nothing is there"),
        ("odd://x/y", UsageError, "Protocol not known"),
        ("s3://x/y", UsageError, "opscope[remote]"),
    ],
)
def test_what_is_not_there_is_said(url: str, error: type[Exception], says: str) -> None:
    if url.startswith("s3") and shutil.which("s3fs"):
        pytest.skip("s3fs is installed")
    with pytest.raises(error, match=says.replace("[", r"\[").replace("]", r"\]")):
        open_run(url)


@pytest.mark.parametrize("name", ["..", "a\\b", "a\x1bb"])
def test_a_name_that_leads_out_is_refused(
    name: str, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RemoteFolder("memory://runs/one")
    listed = {"/runs/one/run.json": {"size": 2}, f"/runs/one/processes/{name}/x": {"size": 1}}
    monkeypatch.setattr(folder._files, "find", lambda *_, **__: listed)
    with pytest.raises(FormatError, match="holds a file of the name"):
        folder.sizes()


def test_a_run_there_is_watched_until_it_is_sealed(recorded: Path, memory: Any) -> None:
    url, sealed = put(memory, recorded), (recorded / "run.json").read_bytes()
    growing = json.loads(sealed) | {"sealed": False}
    memory.pipe_file("/runs/one/run.json", json.dumps(growing).encode())
    said: list[str] = []

    def seal(_: float) -> None:
        memory.pipe_file("/runs/one/run.json", sealed)

    assert follow(url, said.append, sleep=seal, every=1.0).info.sealed
    assert len(said) == 1
    assert said[0].startswith("step ")


def test_parts_there_make_one_run_here(tmp_path: Path, memory: Any) -> None:
    nodes = {"a": [0, 1], "b": [2, 3]}
    urls = [put(memory, part(tmp_path / name, ranks), name) for name, ranks in nodes.items()]
    assert main(["merge", *urls, "-o", str(tmp_path / "run")]) == 0
    run = open_run(tmp_path / "run")
    assert (run.problems, run.info.sealed) == ((), True)
    assert {row.rank for row in records(run, "calls")} == {0, 1, 2, 3}
    assert (tmp_path / "run").stat().st_mode & 0o77 == 0
    assert main(["merge", urls[0], "memory://runs/none", "-o", str(tmp_path / "two")]) == 2
