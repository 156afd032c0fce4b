# SPDX-License-Identifier: Apache-2.0
"""Shipping a run while it is written: growing tables as pieces, deleted files removed, whole files
at the end, and a store that takes nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from opscope.formats.registry import open_run
from opscope.record import shipping
from opscope.record.shipping import Shipper, shipper
from opscope.run.remote import RemoteFolder, piece_name


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(shipping, "EVERY", 0.02)
    store = fsspec.filesystem("memory")
    store.store.clear()
    yield store
    store.store.clear()


def below(store: Any) -> dict[str, bytes]:
    return {
        str(path).removeprefix("/runs/one/"): store.cat_file(path)
        for path in store.find("/runs/one")
    }


def until(store: Any, names: set[str]) -> dict[str, bytes]:
    for _ in range(500):
        if {*below(store)} == names:
            break
        time.sleep(0.02)
    return below(store)


def test_tables_grow_there_as_here_and_become_whole_at_the_end(memory: Any, tmp_path: Path) -> None:
    table, said = tmp_path / "calls.arrow", list[str]()
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "values-1.safetensors.partial").write_bytes(b"half")
    table.write_bytes(b"first")
    with Shipper(tmp_path, "memory://runs/one", said.append) as ship:
        first = piece_name("calls.arrow", 0)
        until(memory, {"run.json", first})
        with table.open("ab") as file:
            file.write(b" second")
        second = piece_name("calls.arrow", 5)
        assert until(memory, {"run.json", first, second})[second] == b" second"
        table.write_bytes(b"cut")  # after a failed write
        assert until(memory, {"run.json", first})[first] == b"cut"
    (tmp_path / "run.json").write_text('{"sealed": true}')
    ship.finish()
    assert below(memory) == {"run.json": b'{"sealed": true}', "calls.arrow": b"cut"}
    assert said == ["shipped to memory://runs/one"]


def test_what_is_deleted_here_goes_there_too(memory: Any, tmp_path: Path) -> None:
    old, table = tmp_path / "values-1.safetensors", tmp_path / "calls-1.arrow"
    old.write_bytes(b"values")
    table.write_bytes(b"calls")
    with Shipper(tmp_path, "memory://runs/one", lambda line: None) as ship:
        assert until(memory, {old.name, piece_name(table.name, 0)})
        old.unlink()
        table.unlink()
        assert until(memory, set()) == {}
    ship.finish()


def test_a_store_that_takes_nothing_is_said_once_and_at_the_end(
    memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: RemoteFolder, name: str, source: Path | bytes) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(RemoteFolder, "write", refuse)
    (tmp_path / "run.json").write_text("{}")
    said: list[str] = []
    with Shipper(tmp_path, "memory://runs/one", said.append) as ship:
        for _ in range(500):
            if said:
                break
            time.sleep(0.02)
        time.sleep(0.2)
    ship.finish()
    assert [line.partition(":")[2].partition("no route")[0] for line in said] == [
        "//runs/one: ",
        "//runs/one: not all was shipped: ",
    ]
    assert f"the run is in {tmp_path}" in said[1]


def test_a_store_that_comes_back_gets_all(
    memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, times = RemoteFolder.write, iter(range(1000))

    def sometimes(self: RemoteFolder, name: str, source: Path | bytes) -> None:
        if next(times) < 4:
            raise ConnectionError("no route")
        write(self, name, source)

    monkeypatch.setattr(RemoteFolder, "write", sometimes)
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "calls.arrow").write_bytes(b"calls")
    said: list[str] = []
    with Shipper(tmp_path, "memory://runs/one", said.append) as ship:
        until(memory, {"run.json", piece_name("calls.arrow", 0)})
    ship.finish()
    assert below(memory) == {"run.json": b"{}", "calls.arrow": b"calls"}
    assert said[-1] == "shipped to memory://runs/one"


def test_an_unknown_protocol_ships_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    assert shipper(tmp_path, "odd://x/y", said.append) is None
    assert said == ["not shipped: odd://x/y: Protocol not known: odd"]


@pytest.mark.zoo
def test_the_command_line_records_here_and_ships(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store/one"
    program = "import torch; torch.ones(3).sqrt()"
    words = [sys.executable, "-m", "opscope", "run", "-o", url, "--", sys.executable, "-c", program]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, timeout=240, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
    assert f"shipped to {url}" in done.stderr
    run = open_run(url)
    assert (run.problems, len(run.processes)) == ((), 1)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["one"]
