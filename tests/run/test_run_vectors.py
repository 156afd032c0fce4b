# SPDX-License-Identifier: Apache-2.0
"""Tables as vectors: whatever is asked of them is what the rows themselves would say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.formats.registry import open_run
from opscope.run.arrow import encode_rows
from opscope.run.keys import NONE, key, keys_at, place_of
from opscope.run.memory import MemoryRun
from opscope.run.protocol import RunInfo
from opscope.run.schema import Tensor
from opscope.run.store.layout import create_run, process_facts, seal_run
from opscope.run.store.writer import ProcessWriter
from opscope.run.vectors import (
    Texts,
    begins_of,
    calls_where,
    codes_of,
    differ,
    stretches,
    vectors,
)

NAMES = ("weight", "bias", "a weight of \u4e2d", "")


def tensor(index: int, **columns: Any) -> Tensor:
    return Tensor(
        **{"process": 0, "index": index, "io": "output", "slot": "0", "dtype": "float32", **columns}
    )


ROWS = st.lists(
    st.builds(
        tensor,
        st.integers(0, 5),
        tensor_name=st.none() | st.sampled_from(NAMES),
        shape=st.none() | st.sampled_from([(), (2,), (2, 3)]),
        digest=st.none() | st.integers(0, (1 << 64) - 1),
        partial=st.none() | st.booleans(),
    ),
    max_size=12,
)


def memory(rows: list[Tensor]) -> MemoryRun:
    return MemoryRun(RunInfo(path="here", format="test"), [], [], rows)


def stored(rows: list[Tensor], folder: Path) -> Any:
    """The same in files, two rows a batch."""
    path = create_run(folder / "run", command=["train.py"])
    writer = ProcessWriter(path, process_facts(), keep=None)
    for first in range(0, len(rows), 2):
        writer.append("tensors", encode_rows("tensors", rows[first : first + 2]), step=0)
    writer.close(0)
    seal_run(path)
    return open_run(path)


def agree(cells: list[Any], found: np.ndarray) -> bool:
    return all(
        (one == other) == bool(a == b)
        for one, a in zip(cells, found, strict=True)
        for other, b in zip(cells, found, strict=True)
    )


@given(rows=ROWS, wanted=st.sets(st.integers(0, 6)))
def test_columns_say_what_the_rows_say(rows: list[Tensor], wanted: set[int]) -> None:
    calls = keys_at((0, index) for index in wanted)
    for batch in vectors(memory(rows), "tensors"):
        assert len(batch) == len(rows)
        assert batch.keys.tolist() == [key(0, row.index) for row in rows]
        assert batch.known("digest").tolist() == [row.digest is not None for row in rows]
        assert batch.true("partial").tolist() == [row.partial is True for row in rows]
        assert batch.are("tensor_name", "bias").tolist() == [r.tensor_name == "bias" for r in rows]
        assert batch.within(calls).tolist() == [
            place for place, row in enumerate(rows) if row.index in wanted
        ]
        for name in ("tensor_name", "shape"):
            cells = [getattr(row, name) for row in rows]
            assert agree(cells, batch.hashes(name))
            assert [code == 0 for code in batch.hashes(name)] == [cell is None for cell in cells]


@given(ROWS)
def test_texts_are_known_by_their_hashes(rows: list[Tensor]) -> None:
    texts = Texts()
    for batch in vectors(memory(rows), "tensors"):
        codes = texts.learn(batch, "tensor_name")
        assert [texts.of[int(code)] for code in codes] == [row.tensor_name or "" for row in rows]
        some = np.arange(0, len(rows), 2)
        assert texts.learn(batch, "tensor_name", some).tolist() == codes[some].tolist()
        lengths = texts.told(codes, len, np.int64)
        assert lengths.tolist() == [len(row.tensor_name or "") for row in rows]
        known = np.isin(codes, codes_of(["bias", "weight"]))
        assert known.tolist() == [row.tensor_name in {"bias", "weight"} for row in rows]


@pytest.mark.parametrize("in_files", [False, True])
def test_calls_are_found_in_every_batch(in_files: bool, tmp_path: Path) -> None:
    rows = [tensor(index, digest=index % 3 or None) for index in (4, 1, 1, 3, 6)]
    run = stored(rows, tmp_path) if in_files else memory(rows)
    found = calls_where(run, "tensors", lambda batch: batch.known("digest"))
    assert found.tolist() == [key(0, 1), key(0, 4)]
    assert len(calls_where(run, "calls", lambda batch: batch.known("error"))) == 0


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2))))
def test_stretches_of_equal_rows(rows: list[tuple[int, int, int]]) -> None:
    first, second, value = np.array(sorted(rows), dtype=np.int64).reshape(-1, 3).T
    begins = begins_of(first, second)
    parts = {row[:2]: {each[2] for each in rows if each[:2] == row[:2]} for row in sorted(rows)}
    assert [set(part.tolist()) for part in stretches(value, begins)] == [*parts.values()]
    assert differ(value, begins).tolist() == [len(each) > 1 for each in parts.values()]


@pytest.mark.parametrize("kind", [np.int64, np.uint64])
@pytest.mark.parametrize("apart", [1, 1 << 40])
@given(st.lists(st.integers(0, 9)), st.lists(st.integers(0, 9)))
def test_what_is_looked_up_is_found_where_it_is(
    kind: Any, apart: int, table: list[int], wanted: list[int]
) -> None:
    rows = place_of(*(np.array([each * apart for each in some], kind) for some in (wanted, table)))
    known = rows != NONE
    assert known.tolist() == [one in table for one in wanted]
    assert all(table[row] == one for row, one, there in zip(rows, wanted, known) if there)
