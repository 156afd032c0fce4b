# SPDX-License-Identifier: Apache-2.0
"""Rows that are chosen by what their columns tell, and read alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from run_rows import call, tensor

from opscope.arrays import Array, Bools
from opscope.formats.registry import open_run
from opscope.run.arrow import Column, encode_rows
from opscope.run.keys import key
from opscope.run.memory import MemoryRun
from opscope.run.protocol import Run, RunInfo
from opscope.run.query import chosen_columns, rows_of, rows_where
from opscope.run.store.layout import create_run, process_facts, seal_run
from opscope.run.store.writer import ProcessWriter

CALLS = [call(index, op=f"op{index % 3}") for index in range(12)]
TENSORS = [tensor(index, slot=slot, max=index) for index in range(12) for slot in ("0", "1")]


@pytest.fixture(params=["native", "memory"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Run]:
    if request.param == "memory":
        yield MemoryRun(RunInfo(path="here", format="test"), [], CALLS, TENSORS)
        return
    path = create_run(tmp_path / "run", command=["train.py"])
    writer = ProcessWriter(path, process_facts(), keep=None)
    for table, rows in (("calls", CALLS), ("tensors", TENSORS)):
        for start in range(0, len(rows), 8):
            writer.append(table, encode_rows(table, rows[start : start + 8]), step=0)
    writer.close(0)
    seal_run(path)
    yield open_run(path)


def test_rows_are_chosen_of_all_calls_and_of_some(run: Run) -> None:
    def second(batch: Mapping[str, Array]) -> Bools:
        return np.asarray(batch["slot"] == "1") & (batch["max"] > 3)

    names = ("slot", "index", "max")
    keys = np.array([key(0, index) for index in (2, 4, 11)])
    chosen = [("1", index, float(index)) for index in range(4, 12)]
    assert list(rows_where(run, "tensors", names, second)) == chosen
    assert list(rows_where(run, "tensors", names, second, keys)) == [chosen[0], chosen[-1]]
    assert list(rows_where(run, "tensors", names, second, keys[:0])) == []
    assert [op for (op,) in rows_of(run, "calls", ("op",), keys)] == ["op2", "op1", "op2"]


def test_texts_of_other_rows_are_not_decoded(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    if run.info.format == "test":
        pytest.skip("lies in memory")
    from opscope.run.store import reader

    decoded = 0
    whole = reader.column_array

    def counted(column: Column) -> Array:
        nonlocal decoded
        decoded += column.length if column.type == "string" else 0
        return whole(column)

    monkeypatch.setattr(reader, "column_array", counted)
    keys = np.array([key(0, 2), key(0, 11)])
    parts = list(chosen_columns(run, "tensors", ("slot", "process"), keys))
    assert [slot for part in parts for slot in part[0].tolist()] == ["0", "1"] * 2
    assert decoded == 4
