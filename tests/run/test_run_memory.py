# SPDX-License-Identifier: Apache-2.0
"""Values of a process that has no memory left, or no room for a thread."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from run_rows import new_run, random_bytes
from safetensors.numpy import load_file

from opscope.run.store import spool
from opscope.run.store.reader import NativeRun


def no_memory(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))


def no_thread(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_value_without_memory_is_lost_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, writer = new_run(tmp_path)
    data = random_bytes(3 * spool.CHUNK_BYTES + 5)
    with monkeypatch.context() as full:
        full.setattr(spool.mmap, "mmap", no_memory)
        lost = [writer.keep_value(data, dtype="uint8", shape=(len(data),)) for _ in range(2)]
    kept = writer.keep_value(data, dtype="uint8", shape=(len(data),))
    with monkeypatch.context() as full:  # those that are made come back
        full.setattr(spool.mmap, "mmap", no_memory)
        more = writer.keep_value(data[1:], dtype="uint8", shape=(len(data) - 1,))
    assert lost == [None, None]
    assert kept is not None
    assert more is not None
    writer.close(0)
    assert writer.failed is None
    assert capsys.readouterr().err.count("no memory for a value") == 1
    assert NativeRun(path).processes[0].unkept == 2
    loaded = load_file(writer.directory / kept.shard)
    assert loaded[kept.key].tobytes() == bytes(data)
    assert loaded[more.key].tobytes() == bytes(data[1:])


def test_values_are_written_where_no_thread_can_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, writer = new_run(tmp_path)
    data = random_bytes(2 * spool.CHUNK_BYTES)
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", no_thread)
        kept = writer.keep_value(data, dtype="uint8", shape=(len(data),))
    assert kept is not None
    writer.close(0)
    assert load_file(writer.directory / kept.shard)[kept.key].tobytes() == bytes(data)
