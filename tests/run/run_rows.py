# SPDX-License-Identifier: Apache-2.0
"""Rows for the tests of the run room: hypothesis strategies for every table, and small made-up
steps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from opscope.run.arrow import encode_rows
from opscope.run.schema import LEVELS, PHASES, RECORDS, TABLES, Call, Tensor, ValueRef
from opscope.run.store.layout import create_run, process_facts
from opscope.run.store.writer import ProcessWriter

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
INT64 = st.integers(-(2**63), 2**63 - 1)
CELLS = {
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": INT64,
    "uint64": st.integers(0, 2**64 - 1),
    "float64": st.floats(),
    "bool": st.booleans(),
    "string": TEXT,
    "list<int64>": st.lists(INT64, max_size=4).map(tuple),
    "list<float32>": st.lists(st.floats(width=32), max_size=4).map(tuple),
    "list<string>": st.lists(TEXT, max_size=3).map(tuple),
    "struct<shard:string,key:string>": st.builds(ValueRef, TEXT, TEXT),
}


def rows_of(table: str) -> st.SearchStrategy[list[Any]]:
    """Lists of records of a table: any value in every column, None where the record allows it."""
    import msgspec

    fields = {field.name: field.required for field in msgspec.structs.fields(RECORDS[table])}
    cells = {
        name: CELLS[kind] if fields[name] else st.none() | CELLS[kind]
        for name, kind in TABLES[table].items()
    }
    return st.lists(st.builds(RECORDS[table], **cells), max_size=12)


def call(index: int, *, step: int = 0, **columns: Any) -> Call:
    """A call with plausible columns."""
    usual = {
        "process": 0,
        "rank": 0,
        "level": LEVELS[0],
        "phase": PHASES[0],
        "op": "aten::add.Tensor",
        "name": f"<root>:add#{index}",
    }
    return Call(**{**usual, "step": step, "index": index, **columns})


def tensor(index: int, **columns: Any) -> Tensor:
    """A tensor row with plausible columns."""
    return Tensor(
        **{
            "process": 0,
            "index": index,
            "io": "input",
            "slot": "0",
            "dtype": "float32",
            "shape": (2, 3),
            **columns,
        }
    )


def new_run(directory: Path, **options: Any) -> tuple[Path, ProcessWriter]:
    """A run directory with the writer of one process."""
    run = create_run(directory / "run", command=["python", "train.py"])
    return run, ProcessWriter(run, process_facts(), **options)


def append_step(
    writer: ProcessWriter,
    step: int,
    *,
    calls: int = 4,
    value: ValueRef | None = None,
    finding: bool = False,
) -> None:
    """One step of calls with one input each."""
    first = step * calls
    rows = [call(first + i, step=step, process=writer.process.process) for i in range(calls)]
    inputs = [
        tensor(first + i, nan=i, min=-float(step), max=float(step), value=value)
        for i in range(calls)
    ]
    writer.append("calls", encode_rows("calls", rows), step=step)
    writer.append("tensors", encode_rows("tensors", inputs), step=step)
    writer.end_step(step, finding=finding)


def random_bytes(count: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Reproducible noise."""
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)
