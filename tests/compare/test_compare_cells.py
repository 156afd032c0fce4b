# SPDX-License-Identifier: Apache-2.0
"""Columns of a side by place are what its records hold, stored or in memory, in any order, NONE as
None.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from opscope.compare.side.columns import side_of
from opscope.compare.side.records import Cells, samples_of
from opscope.run.arrow import encode_rows
from opscope.run.memory import MemoryRun
from opscope.run.protocol import Run, RunInfo
from opscope.run.schema import Call, Process, Tensor, ValueRef
from opscope.run.store.layout import create_run, process_facts
from opscope.run.store.reader import NativeRun
from opscope.run.store.writer import ProcessWriter
from opscope.run.whole_tables import read_tables

CALLS = [
    Call(
        process=0,
        rank=0,
        step=i // 4,
        index=i,
        level="operator",
        phase="forward",
        op="mm",
        name=f"é{i}",
    )
    for i in range(12)
]
# of rows 2 and 6 alone there is one; a file may say anything
SAMPLES = {2: (1.5,) * 8, 3: (1.5,), 4: (), 6: (float("inf"),) * 8}
TENSORS = [
    Tensor(
        process=0,
        index=i,
        io=io,
        slot=str(i),
        dtype="float32",
        shape=None if i == 3 else (i, 2),
        max=None if i == 5 else i / 2,
        requires_grad=[None, True, False][i % 3],
        value=ValueRef(f"s{i}", "k") if i % 2 else None,
        sample=SAMPLES.get(i),
    )
    for i in range(12)
    for io in ("input", "output")
]


def runs(folder: Path) -> list[Run]:
    path = create_run(folder / "run")
    writer = ProcessWriter(path, process_facts())
    for step in range(3):
        writer.append(
            "calls", encode_rows("calls", [row for row in CALLS if row.step == step]), step=step
        )
        writer.append(
            "tensors",
            encode_rows("tensors", [row for row in TENSORS if row.index // 4 == step]),
            step=step,
        )
    writer.close(0)
    info = RunInfo(path="somewhere", format="test")
    return [NativeRun(path), MemoryRun(info, [Process(process=0, directory="p")], CALLS, TENSORS)]


def test_columns_by_place_are_those_of_the_records(tmp_path: Path) -> None:
    for run in runs(tmp_path):
        cells = Cells(side_of(run, *read_tables(run)))
        calls = np.array([11, 0, 0, -1, 5])
        assert cells.of_calls("name", calls) == ["é11", "é0", "é0", None, "é5"]
        for places in (np.array([23, 0, -1, 7, 8, 7]), np.arange(24), np.empty(0, dtype=np.int64)):
            for name in ("slot", "io", "shape", "max", "requires_grad", "value", "sample"):
                assert cells.of_tensors(name, places) == [
                    None if at < 0 else getattr(TENSORS[at], name) for at in places.tolist()
                ]


def test_what_is_no_sample_of_eight_is_none(tmp_path: Path) -> None:
    for run in runs(tmp_path):
        found = samples_of(side_of(run, *read_tables(run)), np.arange(24))
        assert found.shape == (24, 8)
        assert (found[4:6] == 1.5).all()
        assert np.isinf(found[12:14]).all()
        assert np.isnan(np.delete(found, [4, 5, 12, 13], axis=0)).all()
